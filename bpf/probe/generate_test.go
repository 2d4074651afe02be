package probe

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The committed files are the ones that the sources give, with the compiler that the generate line names.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	require.Command(t, "clang-16")
	require.Command(t, "llvm-strip-16")
	require.Command(t, "go")
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "github.com/cilium/ebpf/cmd/bpf2go", "-output-dir", dir, "-cc", "clang-16", "-strip", "llvm-strip-16",
		"-target", "amd64,arm64", "probe", "probe.c", "--", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
	cmd.Env = append(os.Environ(), "GOPACKAGE=probe")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fresh, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(fresh) != 4 {
		t.Fatalf("generated: %v %v", fresh, err)
	}
	for _, file := range fresh {
		want, err1 := os.ReadFile(file)
		got, err2 := os.ReadFile(filepath.Base(file))
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what probe.c gives: run go generate ./bpf/probe (%v %v)", filepath.Base(file), err1, err2)
		}
	}
}
