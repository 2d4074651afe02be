//go:build linux

package integration

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/uml"
)

// The programs of package bpf do under Linux 6.1 what they do here. That kernel has no BTF and wants aligned accesses.
func TestHooksUnderAnotherKernel(t *testing.T) {
	guest := uml.Guest{Modules: []string{"ipv6"}, Env: []string{require.Variable + "=root,cgroup2,bpf"}}
	t.Log(guest.Run(t, uml.TestBinary(t, "../bpf"), "-test.v", "-test.timeout=110s", "-test.skip=^TestGenerated"))
}
