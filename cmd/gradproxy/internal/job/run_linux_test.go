package job

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
)

// The command does not inherit the capabilities that this process has been given to hand on.
func TestCommandHasNoAmbientCapabilities(t *testing.T) {
	require.Root(t)
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Inheritable |= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN, 0, 0); err != nil {
		t.Fatal(err)
	}
	if ambient := ambientIn(t, "/proc/thread-self/status"); !strings.Contains(ambient, "1000") {
		t.Fatalf("%s: the test shows nothing", ambient)
	}
	group, err := cgroup.New("ambient")
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	folder, err := group.Job()
	if err != nil {
		t.Fatal(err)
	}
	status := filepath.Join(t.TempDir(), "status")
	j, err := Start([]string{"sh", "-c", "cp /proc/self/status " + status}, folder, "")
	if err != nil {
		t.Fatal(err)
	}
	if code, err := j.Wait(); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	if ambient := ambientIn(t, status); strings.Trim(strings.TrimPrefix(ambient, "CapAmb:"), "\t0") != "" {
		t.Errorf("the command has %s", ambient)
	}
}

// ambientIn returns the line of the ambient capabilities in a file of proc.
func ambientIn(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "CapAmb:") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("%s has no CapAmb", file)
	return ""
}
