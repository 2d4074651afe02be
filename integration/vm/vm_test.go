package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Both kinds of virtual machine run a program; here it is this test's own binary.
func TestGuest(t *testing.T) {
	require.Long(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			m := named(t, k.name)
			if u, ok := m.(*uml); ok {
				require.Named(t, "uml", u.starts(), "a processor without AMX, on which user-mode Linux 6.1 starts")
			}
			begin := time.Now()
			out := Guest{}.run(t, m, TestBinary(t, "."), append(testFlags(Guest{}.timeout(m)), "-test.run=^TestInside$")...)
			t.Logf("%v with building and booting", time.Since(begin))
			if !strings.Contains(out, "--- PASS: TestInside") || !strings.Contains(out, "runs in "+k.name) {
				t.Errorf("the guest wrote:\n%s", out)
			}
		})
	}
}

func TestInside(t *testing.T) {
	if !Inside() {
		t.Skip("is for the guest of TestGuest")
	}
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		t.Fatal(err)
	}
	t.Logf("kernel %s runs in %s", unix.ByteSliceToString(host.Release[:]), os.Getenv(insideVariable))
	if err := os.WriteFile("/etc/vm-was-here", nil, 0o644); err == nil {
		t.Error("the guest can write to the host's files")
	}
	if err := os.WriteFile(t.TempDir()+"/mine", nil, 0o644); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"/proc/self/stat", "/sys/fs/cgroup/cgroup.procs", "/dev/net/tun", "vm_test.go"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// A guest whose time is over ends by itself.
func TestGuestEndsItself(t *testing.T) {
	require.Long(t)
	m := choose(t, "")
	_, dir := Guest{Timeout: time.Second}.job(t, m, "sleep", []string{"600"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // only if the test fails
	defer cancel()
	var console bytes.Buffer
	err := Guest{}.boot(ctx, m, dir, &console)
	if ctx.Err() != nil || !strings.Contains(console.String(), "the guest's time is over") {
		t.Errorf("%v, %v:\n%s", err, ctx.Err(), console.String())
	}
}

// sleeps is set for the process of TestGuestDiesWithItsTest that is killed.
const sleeps = "GRADPROXY_VM_SLEEPS"

// A test that is killed leaves no guest behind, which as a real-time process would take time from all others.
func TestGuestDiesWithItsTest(t *testing.T) {
	if os.Getenv(sleeps) != "" {
		Run(t, "sleep", "600")
		t.Fatal("has slept")
	}
	require.Long(t)
	m := choose(t, "")
	own := t.TempDir() // on the command line of all processes of the guest
	test := exec.Command(os.Args[0], "-test.run=^TestGuestDiesWithItsTest$")
	test.Env = append(os.Environ(), sleeps+"=1", "TMPDIR="+own)
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		test.Process.Kill()
		test.Wait()
	}()
	minimum := map[string]int{
		"uml":  4, // the kernel's own threads, its first process and the program are the host's processes
		"qemu": 1,
	}[m.name()]
	until(t, "boots", func() bool { return len(processes(t, own)) >= minimum })
	if err := test.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "dies", func() bool { return len(processes(t, own)) == 0 })
}

// until waits for a guest's event.
func until(t *testing.T, event string, done func() bool) {
	t.Helper()
	for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("no guest %s", event)
		}
	}
}

// processes returns the processes of virtual machines with a directory below dir.
func processes(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, _ := os.ReadFile(file) // the process may have ended
		if bytes.Contains(line, []byte(JobVariable+"="+dir)) {
			all = append(all, file)
		}
	}
	return all
}
