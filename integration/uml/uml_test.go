package uml

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
)

// The program of the guest is this test's own binary.
func TestGuest(t *testing.T) {
	out := Run(t, TestBinary(t, "."), "-test.run=^TestInside$", "-test.timeout=110s", "-test.v")
	if !strings.Contains(out, "--- PASS: TestInside") {
		t.Errorf("the guest wrote:\n%s", out)
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
	t.Logf("kernel %s", unix.ByteSliceToString(host.Release[:]))
	if err := os.WriteFile("/etc/uml-was-here", nil, 0o644); err == nil {
		t.Error("the guest can write to the host's files")
	}
	if err := os.WriteFile(t.TempDir()+"/mine", nil, 0o644); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"/proc/self/stat", "/sys/fs/cgroup/cgroup.procs", "/dev/net/tun", "uml_test.go"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// A guest whose time is over ends, also without anybody who ends it.
func TestGuestEndsItself(t *testing.T) {
	kernel, modules := find(t)
	g := Guest{Timeout: time.Second}
	job, dir := g.job(t, "sleep", []string{"600"}, modules)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // only if the test fails
	defer cancel()
	var console bytes.Buffer
	err := runExactly(g.command(ctx, kernel, dir, job, &console))
	if ctx.Err() != nil || !strings.Contains(console.String(), "the guest's time is over") {
		t.Errorf("%v, %v:\n%s", err, ctx.Err(), console.String())
	}
}

// sleeps is set for the process of TestGuestDiesWithItsTest that is killed.
const sleeps = "GRADPROXY_UML_SLEEPS"

// A test that is killed leaves no guest behind, which as a real-time process would take its time from everyone.
func TestGuestDiesWithItsTest(t *testing.T) {
	if os.Getenv(sleeps) != "" {
		Run(t, "sleep", "600")
		t.Fatal("has slept")
	}
	find(t)
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
	until(t, "boots", func() bool { return len(processes(t, own)) > 3 }) // besides the kernel's own threads and its first process
	if err := test.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "dies", func() bool { return len(processes(t, own)) == 0 })
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("no guest %s", what)
		}
	}
}

// processes returns those that run the kernel with a directory below dir.
func processes(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended
		if bytes.Contains(line, []byte("uml_dir="+dir)) {
			all = append(all, file)
		}
	}
	return all
}
