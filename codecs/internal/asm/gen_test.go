package asm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The kernels in the repository equal the output of the generator.
func TestKernelsAreGenerated(t *testing.T) {
	require.Long(t)
	download := exec.CommandContext(t.Context(), "go", "-C", "gen", "mod", "download")
	if out, err := download.CombinedOutput(); err != nil {
		require.Named(t, "avo", false, "a Go module proxy that has the modules of gen/go.mod: "+string(out))
	}
	fresh := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "-C", "gen", "run", ".", fresh).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const repository = "../../.."
	compared := 0
	err := filepath.WalkDir(fresh, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(fresh, path)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its generator writes; run go generate ./codecs/internal/asm", name)
		}
		compared++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if compared == 0 {
		t.Error("the generator writes nothing")
	}
}
