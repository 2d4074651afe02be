package tc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The committed programs are the ones that shape.c makes.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	require.Command(t, "go")
	require.Command(t, "clang-16")
	require.Command(t, "llvm-strip-16")
	source, err := os.ReadFile("program_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(source), "//go:generate go run github.com/cilium/ebpf/cmd/bpf2go ")
	line, _, found := strings.Cut(line, "\n")
	if !found {
		t.Fatal("program_linux.go does not say how the programs are made")
	}
	dir := t.TempDir()
	args := append([]string{"run", "github.com/cilium/ebpf/cmd/bpf2go", "-output-dir", dir, "-go-package", "tc"}, strings.Fields(line)...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	for _, name := range []string{"shape_bpfel.o", "shape_bpfel.go", "shape_bpfeb.o", "shape_bpfeb.go"} {
		made, err1 := os.ReadFile(filepath.Join(dir, name))
		committed, err2 := os.ReadFile(name)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if !bytes.Equal(made, committed) {
			t.Errorf("%s is not what shape.c makes: run go generate ./tc", name)
		}
	}
}
