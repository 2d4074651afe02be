package program

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Table is printed as Markdown.
type Table struct{ writer table.Writer }

// NewTable returns a Table with a heading. A column whose heading begins with "#", which is not printed, has numbers:
// it is aligned to the right.
func NewTable(heading ...string) *Table {
	t := &Table{table.NewWriter()}
	var row table.Row
	var columns []table.ColumnConfig
	for i, h := range heading {
		h, numbers := strings.CutPrefix(h, "#")
		if numbers {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
		}
		row = append(row, h)
	}
	t.writer.AppendHeader(row)
	t.writer.SetColumnConfigs(columns)
	return t
}

// Row adds a row of cells, whose texts are made by fmt.Sprint.
func (t *Table) Row(cells ...any) { t.writer.AppendRow(cells) }

// String returns the table, with a line end after each row.
func (t *Table) String() string { return t.writer.RenderMarkdown() + "\n" }

// A Bar is a claim, and whether the figures bear it out.
type Bar struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
}

// Bars are printed as a Markdown list.
type Bars []Bar

// String returns a line for each claim.
func (bars Bars) String() string {
	var b strings.Builder
	for _, bar := range bars {
		holds := "holds"
		if !bar.Holds {
			holds = "DOES NOT HOLD"
		}
		fmt.Fprintf(&b, "- %s: %s\n", bar.Claim, holds)
	}
	return b.String()
}
