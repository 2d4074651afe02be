// Package page writes the report of package inspect as one page that needs no other file.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/bench"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
)

//go:embed report.html
var reportText string

var reportPage = template.Must(template.New("report").Funcs(inspect.Texts()).Funcs(template.FuncMap{"least": least}).Parse(reportText))

// least reports whether no outcome takes fewer seconds on a link, by its place.
func least(f *inspect.WhatIf, link int, seconds float64) bool {
	for _, o := range f.Outcomes {
		if o.Seconds[link] < seconds {
			return false
		}
	}
	return true
}

// Write writes the page of a report that has a WhatIf. title names the capture.
func Write(w io.Writer, r *inspect.Report, title string) error {
	plot, err := plot(r.WhatIf)
	if err != nil {
		return err
	}
	return reportPage.Execute(w, map[string]any{"Title": title, "Report": r, "Plot": plot})
}

// plot draws the ratio of each policy on links against its error, and the frontier of the policies that no other beats in both.
func plot(f *inspect.WhatIf) (template.HTML, error) {
	var rows []bench.Row
	for _, o := range f.Outcomes {
		rows = append(rows, bench.Row{Codec: o.Codec, Data: "all bytes of the job on links", DType: "headers included",
			Size: bench.Size{Ratio: o.Ratio}, Error: bench.Error{NMSE: o.Error * o.Error}})
	}
	var b bytes.Buffer
	err := bench.Plot(&b, rows)
	return template.HTML(b.String()), err // package svg escapes every text
}
