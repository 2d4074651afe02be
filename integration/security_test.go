package integration

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Each row of SECURITY.md's table names a test that exists.
func TestSecurityNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var code bytes.Buffer
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		code.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[3]) == "test" {
			continue
		}
		rows++
		name := strings.TrimSpace(cells[3])
		if !regexp.MustCompile(`^(Test|Fuzz)\w+$`).MatchString(name) || !strings.Contains(code.String(), "\nfunc "+name+"(") {
			t.Errorf("%s: there is no test %q", strings.TrimSpace(line), name)
		}
	}
	if rows < 20 {
		t.Errorf("%d rows: the table is not read", rows)
	}
}

// The unit's exposure, by systemd's own measure from 0 (none) to 10, stays below 3.
func TestUnitIsConfined(t *testing.T) {
	require.Command(t, "systemd-analyze")
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "../deploy/gradproxy.service").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := regexp.MustCompile(`Overall exposure level for gradproxy.service: ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("no exposure in %s", out)
	}
	if level, err := strconv.ParseFloat(string(found[1]), 64); err != nil || level >= 3 {
		t.Errorf("exposure %s, want less than 3.0", found[1])
	}
}
