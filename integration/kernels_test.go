//go:build linux

package integration

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/vm"
)

// The programs of package bpf pass their tests under Linux 6.1 too. A user-mode kernel has no BTF and demands aligned accesses.
func TestHooksUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	guest := vm.Guest{Modules: []string{"ipv6"}, Env: []string{require.Variable + "=root,cgroup2,bpf"}}
	t.Log(guest.RunTests(t, "../bpf", "-test.skip=^TestGenerated"))
}

// The programs of package probe pass their tests under Linux 6.1 too. A user-mode kernel has no uprobes.
func TestProbesUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	guest := vm.Guest{Kind: "qemu", Modules: []string{"tcp_diag"}, Env: []string{require.Variable + "=root,uprobes,gcc"}}
	t.Log(guest.RunTests(t, "../bpf/probe", "-test.skip=^TestGenerated"))
}

// Datagrams leave under Linux 6.1 too, which cuts no write for a device that computes no checksums.
func TestDatagramsUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	guest := vm.Guest{Env: []string{require.Variable + "=root"}}
	t.Log(guest.RunTests(t, "../proxy/tunnel/udp"))
}
