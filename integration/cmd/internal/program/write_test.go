package program

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file that is as it should be is left alone; another one is written anew.
func TestWriteChangesOnlyWhatDiffers(t *testing.T) {
	root, old := t.TempDir(), time.Unix(1e9, 0)
	for _, name := range []string{"same", "other"} {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte("same"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	err := write(root, func(at string) (map[string][]byte, error) {
		if at != root {
			t.Errorf("rendered in %s", at)
		}
		return map[string][]byte{"same": []byte("same"), "other": []byte("new"), "third": []byte("3")}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"same": "same", "other": "new", "third": "3"} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != want {
			t.Errorf("%s has %q, %v, want %q", name, got, err, want)
		}
	}
	if i, err := os.Stat(filepath.Join(root, "same")); err != nil || !i.ModTime().Equal(old) {
		t.Error("a file that was as it should be was written")
	}
}
