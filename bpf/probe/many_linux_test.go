//go:build amd64 || arm64

package probe

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The kernel's answer to a try counts, whatever its version. The version counts for a process that may not try.
func TestLinksOfManyUprobesAreTried(t *testing.T) {
	for _, x := range []struct {
		err     error
		version uint32
		want    bool
	}{
		{fmt.Errorf("%w (specified pid not found?)", os.ErrNotExist), 6<<16 | 8<<8, true},
		{fmt.Errorf("%w (specified pid not found?)", os.ErrNotExist), 5<<16 | 15<<8, true}, // as in a kernel with a later one's parts
		{fmt.Errorf("program: %w", ebpf.ErrNotSupported), 6<<16 | 8<<8, false},
		{syscall.EINVAL, 6<<16 | 8<<8, false},
		{nil, 6<<16 | 8<<8, false},
		{syscall.EPERM, 6<<16 | 6<<8, true},
		{syscall.EPERM, 6<<16 | 5<<8, false},
	} {
		if got := hasMany(x.err, func() (uint32, error) { return x.version, nil }); got != x.want {
			t.Errorf("%v from Linux %x: %v, want %v", x.err, x.version, got, x.want)
		}
	}
}

// A kernel that is no vendor's has them from Linux 6.6 on, and a later kernel's parts may be in an earlier one.
func TestLinksOfManyUprobes(t *testing.T) {
	require.Root(t)
	version, err := features.LinuxVersionCode()
	if want := version >= 6<<16|6<<8; err != nil || manyAtOnce() != want {
		t.Errorf("Linux %x (%v) has links of many uprobes: %v, want %v", version, err, manyAtOnce(), want)
	}
}

// Where the kernel lacks links of many uprobes, each is attached by itself.
func TestCallsAreToldBySingleUprobes(t *testing.T) {
	t.Parallel()
	p := loadBy(t, func() (*Probes, error) { return loadWith(false) })
	j := built(t, releases[0]).start(t)
	j.do("new 0 4")
	j.find(p)
	if len(j.rank.library.links) < 8 {
		t.Errorf("%d links, want one for each of 8 functions", len(j.rank.library.links))
	}
	j.do("announce 1")
	if c := j.call(j.do("reduce 0 1 0")); c.Elements != 1001 || !c.Bucket {
		t.Errorf("a bucket: call %+v", c)
	}
	if c := j.call(j.do("scatter 0")); c.Elements != 0 {
		t.Errorf("a reduce-scatter: call %+v", c)
	}
}
