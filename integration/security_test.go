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

// The unit, by itself and with what probes take besides, is one that systemd reads without a complaint but for programs
// that are not installed. No test starts it: that takes a systemd.
func TestUnitIsValid(t *testing.T) {
	require.Command(t, "systemd-analyze")
	text, err := os.ReadFile("../deploy/gradproxy.service")
	if err != nil {
		t.Fatal(err)
	}
	installed := strings.ReplaceAll(string(text), "/usr/local/bin/gradproxy", "/bin/true")
	if strings.Contains(installed, "bin/gradproxy") || !strings.Contains(installed, "ExecStart=/bin/true run -c") {
		t.Fatal("the unit's program lies elsewhere: name it here")
	}
	verify := func(text string) string {
		file := filepath.Join(t.TempDir(), "gradproxy.service")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
		var said []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "gradproxy.service") {
				said = append(said, line)
			}
		}
		if err != nil {
			said = append(said, err.Error())
		}
		return strings.Join(said, "")
	}
	probes, err := os.ReadFile("../deploy/packages/probes.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{installed, installed + string(probes)} {
		if said := verify(unit); said != "" {
			t.Errorf("systemd says of the unit:\n%s", said)
		}
	}
	if said := verify(strings.Replace(installed, "SystemCallFilter=", "SystemCallFilter=@no-such-group ", 1)); !strings.Contains(said, "no-such-group") {
		t.Errorf("systemd says nothing of a group of system calls that it does not know, and so leaves out: %q", said)
	}
	if said := verify(strings.Replace(installed, "Restart=", "Restrat=", 1)); !strings.Contains(said, "Restrat") {
		t.Errorf("systemd says nothing of a key that it does not know: %q", said)
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
