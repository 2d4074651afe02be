package require

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Generated checks that the committed programs of a package for the kernel are the ones that the go:generate line of
// one of its files makes. It skips t unless the compiler is there.
func Generated(t *testing.T, pkg, file string) {
	t.Helper()
	Command(t, "go")
	Command(t, "clang-16")
	Command(t, "llvm-strip-16")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(source), "//go:generate go run github.com/cilium/ebpf/cmd/bpf2go ")
	line, _, found := strings.Cut(line, "\n")
	if !found {
		t.Fatalf("%s does not say how the programs are made", file)
	}
	dir := t.TempDir()
	args := append([]string{"run", "github.com/cilium/ebpf/cmd/bpf2go", "-output-dir", dir, "-go-package", pkg}, strings.Fields(line)...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	fresh, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(fresh) != 4 { // an object and its Go code, for two kinds of processors
		t.Fatalf("generated: %v %v", fresh, err)
	}
	for _, path := range fresh {
		name := filepath.Base(path)
		want, err1 := os.ReadFile(path)
		got, err2 := os.ReadFile(name)
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source makes: run go generate in its folder (%v %v)", name, err1, err2)
		}
	}
}
