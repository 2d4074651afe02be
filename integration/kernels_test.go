//go:build linux

package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/vm"
)

// The programs of package bpf pass their tests under Linux 6.1 too. A user-mode kernel has no BTF and demands aligned
// accesses, and it has no uprobes, of which a proxy's log says so.
func TestHooksUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	guest := vm.Guest{Timeout: 5 * time.Minute, Modules: []string{"ipv6"}, Env: []string{require.Variable + "=root,cgroup2,bpf"}}
	site := vm.TestBinary(t, "../cmd/gradproxy/internal/site")
	// One after another: on a slow guest a process that one test forks holds the descriptors of all others for a while,
	// until it executes its program, so that programs stay attached and locks stay taken.
	hooks := []string{vm.TestBinary(t, "../bpf"), "-test.skip=^TestGenerated", "-test.parallel=1"}
	out := guest.RunEach(t, hooks, []string{site, "-test.run=^TestKernelWithoutUprobes$"})
	t.Log(out)
	if passed := "--- PASS: TestKernelWithoutUprobes"; !vm.Emulated() && !strings.Contains(out, passed) {
		t.Errorf("no %q", passed)
	}
}

// The programs of package probe pass their tests under Linux 6.1 too, and are of use where that kernel is locked down.
func TestProbesUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	require.Command(t, "gcc")
	probe := vm.TestBinary(t, "../bpf/probe")
	programs := "GRADPROXY_PROBE_PROGRAMS=" + t.TempDir() // a compiler would take the guest most of its time
	compile := exec.Command(probe, "-test.run=^TestProgramsOfAGuest$")
	compile.Env = append(os.Environ(), programs)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	guest := vm.Guest{Kind: "qemu", Timeout: 5 * time.Minute, Modules: []string{"tcp_diag"}, Env: []string{require.Variable + "=root,uprobes", programs}}
	const locked = "TestUnderLockdown"
	out := guest.RunEach(t, []string{probe, "-test.skip=^(TestGenerated.*|TestModel.*|" + locked + ")$"}, []string{probe, "-test.run=^" + locked + "$"})
	t.Log(out)
	if passed := "--- PASS: " + locked; !strings.Contains(out, passed) {
		t.Errorf("no %q", passed)
	}
}

// Datagrams leave under Linux 6.1 too, which cuts no write for a device that computes no checksums.
func TestDatagramsUnderAnotherKernel(t *testing.T) {
	t.Parallel() // a guest takes one processor
	require.Long(t)
	guest := vm.Guest{Timeout: 5 * time.Minute, Env: []string{require.Variable + "=root"}}
	t.Log(guest.RunTests(t, "../proxy/tunnel/udp"))
}
