//go:build amd64 || arm64

package probe

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Where the kernel has links of many uprobes, calls are told, of each release, to a process that has no capabilities
// but the three that the documentation names.
func TestCallsAreToldWithoutSysAdmin(t *testing.T) {
	require.Root(t)
	require.Command(t, "setpriv")
	if !manyAtOnce() {
		t.Skip("needs links of many uprobes (Linux 6.6): a uprobe by itself takes CAP_SYS_ADMIN")
	}
	const capabilities = "-all,+bpf,+perfmon,+sys_ptrace"
	c := exec.Command("setpriv", "--inh-caps", capabilities, "--bounding-set", capabilities, os.Args[0], "-test.run", "^TestCallsAreTold$", "-test.v")
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestCallsAreTold/2.15") {
		t.Errorf("%v\n%s", err, out)
	}
}
