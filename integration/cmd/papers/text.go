package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// WriteText writes t as text: the setup, then the rows, how many hold, and why the others do not.
func WriteText(w io.Writer, t Table) {
	quick := ""
	if t.Quick {
		quick = " (quick: fewer steps than the paper's shape needs; figures are rough)"
	}
	fmt.Fprintf(w, "%s, %s: %s%s\n", t.Paper, t.Table, t.Title, quick)
	for _, line := range t.Setup {
		fmt.Fprintf(w, "  %s\n", line)
	}
	out := table.NewWriter()
	out.SetOutputMirror(w)
	out.SetStyle(table.StyleLight)
	out.Style().Format.Header = text.FormatDefault
	out.Style().Options.SeparateColumns = false
	out.Style().Options.DrawBorder = false
	out.AppendHeader(table.Row{"", "quantity", "paper", "here", "holds", "if"})
	out.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight},
	})
	for _, r := range t.Rows {
		holds := "yes"
		switch {
		case !r.Holds:
			holds = "no"
		case r.Calibrated:
			holds = "-"
		}
		out.AppendRow(table.Row{r.Label, r.Quantity, figure(r.Paper), figure(r.Here), holds, r.Band.String()})
	}
	out.Render()
	fmt.Fprintf(w, "  %d of %d rows hold", t.Held, t.Counted)
	if n := len(t.Rows) - t.Counted; n > 0 {
		fmt.Fprintf(w, "; %d by construction (calibrated) are not counted", n)
	}
	fmt.Fprintln(w)
	writeReasons(w, t.Rows)
	fmt.Fprintln(w)
}

// writeReasons writes each reason once, after the rows that do not hold for it.
func writeReasons(w io.Writer, rows []Row) {
	var reasons []string
	of := make(map[string][]string)
	for _, r := range rows {
		if r.Holds {
			continue
		}
		if of[r.Why] == nil {
			reasons = append(reasons, r.Why)
		}
		of[r.Why] = append(of[r.Why], r.Label+", "+r.Quantity)
	}
	for _, why := range reasons {
		fmt.Fprintf(w, "  %s: %s\n", strings.Join(of[why], "; "), why)
	}
}
