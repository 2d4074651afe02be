package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gradproxy/gradproxy/proxy/admin"
)

// An order says which tensors come first.
type order int

const (
	byRate order = iota
	byBytes
	byRatio
	orders
)

var orderNames = [orders]string{"rate", "bytes", "ratio, the worst first"}

// A view is the part of a Snapshot that is on the terminal.
type view struct {
	page   page
	left   int // columns that are left out at the left
	order  order
	offset int    // of the first tensor that is shown, or lines
	tensor uint64 // id of the one that is shown in place of the overview; 0: none
	back   int    // offset of the overview meanwhile
	paused bool
	fault  error // why the last question had no answer; nil: it had one
}

// A line of text, and how it is shown.
type line struct {
	text  string
	style style
}

type style int

const (
	plain style = iota
	heading
	bad
)

// text writes a Snapshot as lines, at most height.
func text(x *Snapshot, v view, height int) []line {
	all := head(x, v)
	body := v.body(x)
	if (v.page != overview || v.tensor != 0) && len(body) > 0 { // a heading stays
		body = slices.Delete(body, 1, min(1+v.offset, len(body)))
	}
	for _, l := range body {
		shown := []rune(l.text)
		all = append(all, line{string(shown[min(v.left, len(shown)):]), l.style})
	}
	if len(all) > height-1 {
		all = all[:max(height-1, 0)]
	}
	return append(all, v.foot())
}

// A writer collects lines.
type writer []line

func (all *writer) put(s style, format string, args ...any) {
	*all = append(*all, line{fmt.Sprintf(format, args...), s})
}

// head is the lines above all pages.
func head(x *Snapshot, v view) []line {
	var all writer
	all.put(heading, "gradproxy top: site %s, %s, up for %v, %s", x.Site, x.Version, time.Duration(x.Uptime*float64(time.Second)).Round(time.Second), x.Time.Format(time.TimeOnly))
	if v.fault != nil {
		all.put(bad, "%v", v.fault)
	}
	for _, c := range x.Checks {
		if !c.OK {
			all.put(bad, "%v", c)
		}
	}
	all.put(plain, "%d connections; apps sent %s and got %s; links carried %s and %s%s", x.Connections, admin.Size(x.Raw), admin.Size(x.Delivered),
		admin.Size(x.Network.Sent), admin.Size(x.Network.Received), times(x.Network.Ratio(x.Raw, x.Delivered)))
	all.put(plain, "")
	return all
}

// body is the page, whole but for the tensors that are not shown.
func (v view) body(x *Snapshot) []line {
	switch v.page {
	case past:
		return pastOf(x)
	case carriers:
		return peersAndCarriers(x)
	case jobs:
		return jobRows(x)
	case plans:
		return budgetsAndShadow(x)
	}
	if v.tensor != 0 {
		return chosen(x, v.tensor)
	}
	return linksAndTensors(x, v)
}

func budgetsAndShadow(x *Snapshot) []line {
	var all writer
	if len(x.Plans) == 0 {
		all.put(plain, "no peer and no job has a budget")
	} else {
		all = append(all, budgetRows(x)...)
	}
	all.put(plain, "")
	if x.Shadow == nil {
		all.put(plain, "no codec is tried (shadow)")
	} else {
		all = append(all, shadowRows(x)...)
	}
	return all
}

func linksAndTensors(x *Snapshot, v view) []line {
	all := writer(links(x))
	all.put(plain, "")
	tensors := sorted(x.Tensors, v.order)
	first := min(v.offset, max(len(tensors)-1, 0))
	all.put(plain, "tensors sent: %d, ordered by %s", x.Listed, orderNames[v.order])
	table := rows(tensors[first:])
	if len(tensors) > 0 {
		table[1].style = heading // the one that Enter opens
	}
	return append(all, table...)
}

// foot is the last line, which explains the keys.
func (v view) foot() line {
	foot := fmt.Sprintf("q quit  tab: %s (%d of %d)  ← → columns  ↑ ↓ scroll  s order  p pause", pageNames[v.page], v.page+1, int(pages))
	switch {
	case v.tensor != 0:
		foot += "  esc back"
	case v.page == overview:
		foot += "  enter tensor"
	}
	if v.paused {
		foot += "   (paused)"
	}
	return line{foot, heading}
}

// first returns the tensor at the top of the overview, which has one.
func first(x *Snapshot, v view) Tensor {
	tensors := sorted(x.Tensors, v.order)
	return tensors[min(v.offset, len(tensors)-1)]
}

// links is the table of links.
func links(x *Snapshot) []line {
	rows := []table.Row{}
	for i, p := range x.Peers {
		l := x.Links[i]
		money := ""
		if m := p.Money; m != nil {
			money = savings(&admin.Money{Currency: m.Currency, Spent: m.Spent, Saved: m.Saved})
		}
		rows = append(rows, table.Row{p.Name, admin.LinkState(p.Up, p.Outage), admin.RTTOf(p.RTT), perSecond(l.Raw), perSecond(l.Sent), perSecond(l.Got), perSecond(l.Received), ratio(l.Ratio), money})
	}
	return tabular(table.Row{"PEER", "STATE", "RTT", "APPS SEND", "LINK SENDS", "APPS GET", "LINK GETS", "RATIO", "SAVED"}, rows, func(r table.Row) bool { return r[1] != "up" })
}

// rows is the table of tensors.
func rows(tensors []Tensor) []line {
	rows := []table.Row{}
	for _, t := range tensors {
		rows = append(rows, table.Row{cmp.Or(t.Job, "-"), name(&t), t.Protocol, t.Role, t.DType, admin.Size(int64(t.Bytes)), perSecond(t.Rate), admin.Size(t.RawBytes), ratio(t.Ratio), t.Codec, reason(t.Reason), fmt.Sprintf("%016x", t.Key)})
	}
	return tabular(table.Row{"JOB", "TENSOR", "PROTOCOL", "ROLE", "TYPE", "SIZE", "RATE", "RAW", "RATIO", "CODEC", "REASON", "KEY"}, rows, func(table.Row) bool { return false })
}

// name names a tensor as a person knows it: by its sender, its name or its number among the tensors of its connection,
// and its shape.
func name(t *Tensor) string {
	what := t.Name
	if what == "" && t.Number > 0 {
		what = fmt.Sprintf("#%d", t.Number)
	}
	text := printable(strings.Join(slices.DeleteFunc([]string{t.From, what, t.Shape}, func(s string) bool { return s == "" }), " "))
	const limit = 48
	if len(text) > limit {
		text = append(text[:limit-1], '…')
	}
	return cmp.Or(string(text), "-")
}

// reason leaves out the reason that is none.
func reason(s string) string {
	if s == "ok" {
		return ""
	}
	return s
}

// tabular lines rows up under a heading.
func tabular(head table.Row, rows []table.Row, isBad func(table.Row) bool) []line {
	w := table.NewWriter()
	w.SetStyle(table.StyleDefault)
	w.Style().Options = table.OptionsNoBordersAndSeparators
	w.Style().Box.PaddingLeft, w.Style().Box.PaddingRight = "", "  "
	w.AppendRow(head)
	w.AppendRows(rows)
	var all []line
	for i, text := range strings.Split(w.Render(), "\n") {
		l := line{strings.TrimRight(text, " "), plain}
		switch {
		case i == 0:
			l.style = heading
		case i <= len(rows) && isBad(rows[i-1]):
			l.style = bad
		}
		all = append(all, l)
	}
	return all
}

// sorted returns tensors in another order.
func sorted(tensors []Tensor, by order) []Tensor {
	tensors = slices.Clone(tensors)
	switch by {
	case byBytes:
		slices.SortStableFunc(tensors, func(a, b Tensor) int { return cmp.Compare(b.RawBytes, a.RawBytes) })
	case byRatio:
		slices.SortStableFunc(tensors, func(a, b Tensor) int { return cmp.Compare(a.Ratio, b.Ratio) })
	}
	return tensors
}

func perSecond(rate float64) string { return admin.Size(int64(rate)) + "/s" }

func ratio(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r)
}

// times says by which factor links carry fewer bytes than apps send and get.
func times(r float64) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf(" (ratio %.2f)", r)
}
