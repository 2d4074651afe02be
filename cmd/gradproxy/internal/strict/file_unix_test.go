//go:build unix

package strict

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file without an end must not make ReadFile read, or wait, for ever.
func TestReadWhatIsNoFile(t *testing.T) {
	if _, err := ReadFile("/dev/zero", 1<<20); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("/dev/zero: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(pipe, 1<<20); len(text) != 0 || err != nil {
		t.Errorf("a pipe that nobody writes to: %q, %v", text, err)
	}
}
