package integration

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/packages.md has a row for each package of the proxy and for the roots of all others, and for nothing else. A row
// may stand for packages below it that its text names.
func TestPagesRowsArePackages(t *testing.T) {
	page, err := os.ReadFile("../docs/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = row[2]
	}
	var names []string
	for _, p := range packages(t, "./...") {
		names = append(names, strings.TrimPrefix(p.ImportPath, module))
	}
	for name := range rows {
		if !slices.Contains(names, name) {
			t.Errorf("docs/packages.md has a row for %s, which is no package", name)
		}
	}
	for _, name := range names {
		first, _, below := strings.Cut(name, "/")
		switch {
		case rows[name] != "":
		case strings.Contains(name, "/internal/") || strings.HasSuffix(name, "test"):
		case first == "bpf" || strings.HasPrefix(name, "proxy/tunnel/"):
			if text := rows[path.Dir(name)]; !strings.Contains(text, "`"+path.Base(name)+"`") {
				t.Errorf("docs/packages.md does not name %s in the row of the package above it", name)
			}
		case first == "proxy" && !strings.HasPrefix(name, "proxy/intercept/"), !below:
			t.Errorf("docs/packages.md has no row for %s", name)
		}
	}
}
