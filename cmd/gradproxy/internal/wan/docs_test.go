package wan

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The topology that the documentation shows can be used as it is, and its table has every key.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/wan.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Error("there is no topology")
	}
	for _, b := range blocks {
		if _, problems := parse("docs/wan.md", b[1], files); len(problems) > 0 {
			t.Errorf("%v in\n%s", problems, b[1])
		}
	}
	_, problems := parse("f", []byte("nosuchkey: 1\nmesh: {nosuchkey: 1}\nsites: [{nosuchkey: 1}]\n"), files)
	for _, p := range problems {
		_, list, _ := strings.Cut(p.Message, "its keys are ")
		for key := range strings.SplitSeq(list, ", ") {
			if key != "there" && key != "back" && !strings.Contains(string(text), "`"+key+"`") {
				t.Errorf("docs/wan.md does not say what the key %s is", key)
			}
		}
	}
}
