package wan

import (
	"os"
	"path/filepath"
	"testing"
)

// Networks are found in any folder, whatever its name means in a pattern.
func TestNetworksOfAnyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a\x2db[c`)
	if all, err := Networks(dir); err != nil || len(all) != 0 {
		t.Errorf("no folder: %v, %v", all, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"x.json": `{"plan": {"name": "x"}}`, "x.lock": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Networks(dir)
	if err != nil || len(all) != 1 || all[0].Plan.Name != "x" {
		t.Errorf("found %v, %v; want x", all, err)
	}
}
