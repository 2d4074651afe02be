package uml

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The program of the guest is this test's own binary.
func TestGuest(t *testing.T) {
	out := Run(t, TestBinary(t, "."), "-test.run=^TestInside$", "-test.v")
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
