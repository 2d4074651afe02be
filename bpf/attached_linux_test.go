package bpf

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// wantDetached fails the test unless the cgroup's programs are gone, or go at once: a process that another test has
// forked holds their links until it executes its program.
func wantDetached(t *testing.T, folder string) {
	t.Helper()
	late := time.Now().Add(10 * time.Second)
	n := attached(t, folder)
	for ; n > 0 && time.Now().Before(late); n = attached(t, folder) {
		time.Sleep(10 * time.Millisecond)
	}
	if n > 0 {
		t.Errorf("%d programs are left on the cgroup", n)
	}
}

// attached counts the programs at all places of a cgroup that this package uses.
func attached(t *testing.T, folder string) (n int) {
	t.Helper()
	f, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, a := range []ebpf.AttachType{
		ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCgroupInet4GetPeername,
		ebpf.AttachCgroupInet6GetPeername, ebpf.AttachCGroupSockOps, ebpf.AttachCGroupGetsockopt,
		ebpf.AttachCGroupInetEgress,
	} {
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(f.Fd()), Attach: a})
		if err != nil {
			t.Fatal(err)
		}
		n += len(r.Programs)
	}
	return n
}
