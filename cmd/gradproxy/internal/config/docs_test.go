package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/setup"
)

const docs = "../../../../docs/"

// The examples are good files, and mirror images of each other: a site may dial each network to which its peer sends.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(docs + "examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	sites := map[string]*Config{}
	var all []*Config
	for _, file := range files {
		c, problems := Load(file, known())
		if len(problems) > 0 {
			t.Errorf("%v", problems)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); c.Site != want {
			t.Errorf("%s is that of site %s", file, c.Site)
		}
		sites[c.Site] = c
		all = append(all, c)
	}
	if problems := Together(all); len(problems) > 0 {
		t.Error(problems)
	}
	for _, c := range sites {
		for _, p := range c.Peers {
			far := sites[p.Name]
			if far == nil {
				t.Errorf("%s has a peer %s without a file", c.Site, p.Name)
				continue
			}
			for _, back := range far.Peers {
				if back.Name != c.Site {
					continue
				}
				if p.Dial == "" && back.Dial == "" {
					t.Errorf("neither of %s and %s dials", c.Site, p.Name)
				}
				if len(back.MayDial) != 1 || !covers(p.Networks, prefixes(back.MayDial[0].Network.String())) {
					t.Errorf("%s sends to %v of %s, which lets it dial %v", c.Site, p.Networks, p.Name, back.MayDial)
				}
			}
		}
	}
}

// The files that the documentation shows can be used as they are.
func TestDocumentedFiles(t *testing.T) {
	for file, minimum := range map[string]int{"configuration.md": 2, "loss.md": 1} {
		text, err := os.ReadFile(docs + file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) < minimum {
			t.Fatalf("%s has %d blocks of YAML", file, len(blocks))
		}
		for _, b := range blocks {
			if _, problems := parse(file, []byte(b[1]), known()); len(problems) > 0 {
				t.Errorf("%v in\n%s", problems, b[1])
			}
		}
	}
}

// fixed finds the multiplier of a rule whose codec is 3LC with a fixed one.
var fixed = regexp.MustCompile(`codec: *['"]?3lc\([^)\n]*\bs=([0-9.]+)`)

// coarse returns the rules of a text by which values travel by 3LC with a multiplier above 1.5.
func coarse(text string) (rules []string) {
	for _, m := range fixed.FindAllStringSubmatch(text, -1) {
		if s, err := strconv.ParseFloat(m[1], 64); err != nil || s > 1.5 {
			rules = append(rules, m[0])
		}
	}
	return rules
}

// No rule that a page shows or the first questions write has pushes or weights travel by 3LC with a multiplier above
// 1.5: that costs points of accuracy in a training of some hundred steps (docs/loss.md has the table). Lists of a
// budget and of shadow mode may name one.
func TestNoRuleShownIsTooCoarse(t *testing.T) {
	for text, want := range map[string]int{
		`codec: 3lc`: 0, `codec: "3lc(s=auto)"`: 0, `codec: "3lc(s=1.5)"`: 0, `codec: '3lc(s=1.50)'`: 0, `codec: int4} # 3lc(s=1.9)`: 0,
		`codec: "3lc(s=1.51)"`: 1, `codec: 3lc(s=1.59)`: 1, `codec: "3lc(block=4096,s=1.6)"`: 1, "codec: '3lc(s=1.75,block=48)'\ncodec: 3lc(s=1.9)": 2,
	} {
		if got := coarse(text); len(got) != want {
			t.Errorf("in %s %q is found", text, got)
		}
	}
	rules := 0
	for _, pattern := range []string{"../README.md", "*.md", "guides/*", "examples/*/*.yaml", "../deploy/*/*.yaml", "../deploy/*/*/*.yaml", "../cmd/gradproxy/*.go", "../cmd/gradproxy/internal/demo/*.go"} {
		files, err := filepath.Glob(docs + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rules += strings.Count(string(text), "codec: ")
			if found := coarse(string(text)); found != nil {
				t.Errorf("%s shows the rules %q", file, found)
			}
		}
	}
	if rules < 10 {
		t.Errorf("%d rules: the pages are not read", rules)
	}
	for i, loss := range setup.Losses {
		text, c := firstQuestions(t, loss)
		if found := coarse(text); found != nil {
			t.Errorf("where %s may be lost, the rules %q are written", loss, found)
		}
		if (len(c.Policy) > 0) != (i > 0) || len(c.Policy) != strings.Count(text, "codec: ") {
			t.Errorf("%d rules where %s may be lost, in:\n%s", len(c.Policy), loss, text)
		}
	}
}

// firstQuestions returns the configuration that the answers to the first questions make of a site.
func firstQuestions(t *testing.T, loss string) (string, *Config) {
	t.Helper()
	dir := t.TempDir()
	plan := setup.Plan{Sites: [2]setup.Site{{Name: "paris", Address: "192.0.2.1", Networks: prefixes("10.1.0.0/16")}, {Name: "tokyo", Networks: prefixes("10.2.0.0/16")}}, Loss: loss, Domain: "training"}
	if _, err := setup.Write(dir, plan, false); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "paris", setup.ConfigName)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := parse(file, text, known())
	if errs := problems.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	return string(text), c
}

// Every key has its row in the documentation, in the section of its mapping, and no other has.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile(docs + "configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{} // by section
	section := ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		if m := regexp.MustCompile("^\\| `([a-z_]+)` \\|").FindStringSubmatch(line); m != nil {
			rows[section] = append(rows[section], m[1])
		}
	}
	for section, probe := range map[string]string{
		"The whole file": "[]", "tunnel": "{tunnel: 1}", "peers": "{peers: 1}", "intercept": "{intercept: 1}",
		"forward": "{forward: 1}", "jobs": "{jobs: 1}", "policy": "{policy: 1}", "state": "{state: 1}",
	} {
		_, problems := parse("f", []byte(probe), known())
		var keys string
		for _, p := range problems {
			if _, list, ok := strings.Cut(p.Message, "a mapping is needed: its keys are "); ok {
				keys = list
			}
		}
		want := map[string]bool{}
		for _, key := range strings.Split(keys, ", ") {
			want[key] = true
		}
		for _, key := range rows[section] {
			if !want[key] {
				t.Errorf("section %s has a key %s, which there is not", section, key)
			}
			delete(want, key)
		}
		for key := range want {
			t.Errorf("section %s lacks the key %s", section, key)
		}
	}
}
