package bpf

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

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
