// Package page writes the report of package inspect as one page that needs no other file.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"strconv"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
)

//go:embed report.html
var reportText string

var reportPage = template.Must(template.New("report").Funcs(inspect.Texts()).Funcs(template.FuncMap{"fastest": fastest, "best": best, "part": part, "plot": plotOf, "at": number}).Parse(reportText))

// fastest reports whether no outcome takes fewer seconds on a link, by its place.
func fastest(f *inspect.WhatIf, link int, seconds float64) bool {
	for _, o := range f.Outcomes {
		if o.Seconds[link] < seconds {
			return false
		}
	}
	return true
}

// best reports whether no other policy has both fewer bytes on links and no more error than the policy o, or as many
// and less error.
func best(f *inspect.WhatIf, o inspect.Outcome) bool {
	for _, other := range f.Outcomes {
		if other.Ratio >= o.Ratio && other.Error <= o.Error && (other.Ratio > o.Ratio || other.Error < o.Error) {
			return false
		}
	}
	return true
}

// part returns the bytes of o on links, in percent of the most that a policy has.
func part(f *inspect.WhatIf, o inspect.Outcome) float64 {
	largest := 1.0
	for _, other := range f.Outcomes {
		largest = max(largest, float64(other.Bytes))
	}
	return 100 * float64(o.Bytes) / largest
}

// number writes a coordinate.
func number(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// Write writes the page of a report that has a WhatIf. title names the capture.
func Write(w io.Writer, r *inspect.Report, title string) error {
	return reportPage.Execute(w, map[string]any{"Title": title, "Report": r})
}
