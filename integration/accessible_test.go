//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A violation is a rule of accessibility that a page breaks.
type violation struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// judge has axe-core look at the page as it stands, and fails for each rule that it breaks. Of a table it looks at
// three rows: the others are like them.
func (b *browser) judge(name string) {
	b.t.Helper()
	var text string
	b.do(chromedp.Evaluate(require.Axe(b.t), nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithReturnByValue(false) }),
		chromedp.Evaluate(`axe.run({exclude: [["tbody tr:nth-child(n+4)"]]}, {resultTypes: ["violations"]}).then((r) => JSON.stringify({passes: r.passes.length, violations: r.violations}))`, &text,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var found struct {
		Passes     int         `json:"passes"`
		Violations []violation `json:"violations"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatal(err)
	}
	if found.Passes < 20 {
		b.t.Errorf("%s: only %d rules of accessibility apply", name, found.Passes)
	}
	for _, v := range found.Violations {
		places := ""
		for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
			places += fmt.Sprintf("\n%.300s\n%s", n.HTML, n.Summary)
		}
		b.t.Errorf("%s: %s (%s): %s, at %d places:%s", name, v.ID, v.Impact, v.Help, len(v.Nodes), places)
	}
}

// focusOrder presses Tab until the focus has gone round, and returns a name of each element that had it.
func (b *browser) focusOrder(t *testing.T) (order []string) {
	t.Helper()
	const name = `(() => { const e = document.activeElement; return e === document.body ? "" : (e.id || e.name || e.className || e.tagName) })()`
	b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	for range 80 {
		b.do(chromedp.KeyEvent("\t"))
		got := eval[string](b, name)
		if got == "" && len(order) > 0 {
			return order
		}
		order = append(order, got)
	}
	return order
}
