package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/shadow"
)

// A page is one of the views between which a user switches.
type page int

const (
	overview page = iota // links and tensors
	carriers             // peers and their carriers
	jobs                 // by peer and job
	plans                // budgets of the day, and the candidates of shadow mode
	past                 // rates and outages of the last hour
	pages
)

var pageNames = [pages]string{"overview", "peers and carriers", "jobs", "budgets and shadow mode", "the last hour"}

// peersAndCarriers is the table of peers with their carriers, as the page has it.
func peersAndCarriers(x *Snapshot) []line {
	rows, broken := []table.Row{}, []bool{}
	for _, p := range x.Carried {
		rows = append(rows, table.Row{p.Name, admin.LinkState(p.Up, p.Outage) + choice(p.Choice), admin.RTTOf(p.RTT), "", "", admin.Size(int64(p.Unconfirmed)), admin.Size(p.Raw), admin.Size(p.Sent),
			admin.Size(p.Delivered), admin.Size(p.Received), ratio(over(p.Raw+p.Delivered, p.Sent+p.Received)), perSecond(p.Goodput), p.Outages, savings(p.Money)})
		broken = append(broken, !p.Up)
		for _, c := range p.Carriers {
			state := "for " + seconds(c.Age)
			if c.Leaving {
				state = "leaving"
			}
			rows = append(rows, table.Row{"  " + c.Carrier + " to " + c.Remote, state, admin.RTTOf(c.RTT), fmt.Sprintf("%.2f %%", 100*c.Loss), cmp.Or(c.Congestion, "?"), admin.Size(int64(c.Backlog)), "",
				admin.Size(int64(c.Sent)), "", admin.Size(int64(c.Received)), "", "", "", ""})
			broken = append(broken, false)
		}
	}
	all := tabular(table.Row{"PEER, CARRIER", "STATE", "RTT", "LOSS", "CONGESTION", "BACKLOG", "JOB SENT", "WAN SENT", "JOB GOT", "WAN GOT", "RATIO", "DELIVERS", "OUTAGES", "SAVED"}, rows, func(table.Row) bool { return false })
	for i := range rows {
		if broken[i] && i+1 < len(all) {
			all[i+1].style = bad
		}
	}
	return all
}

// jobRows is the table of jobs by peer: bytes since the start, and the rates of the last whole second, the WAN's too.
func jobRows(x *Snapshot) []line {
	rows := []table.Row{}
	for _, j := range x.Jobs {
		rows = append(rows, table.Row{cmp.Or(j.Job, "(no job)"), j.Peer, admin.Size(j.Raw), admin.Size(j.Wire), admin.Size(j.Delivered), perSecond(j.RawRate), perSecond(j.SentRate), perSecond(j.DeliveredRate), perSecond(j.ReceivedRate),
			ratio(over(int64(j.RawRate+j.DeliveredRate), int64(j.SentRate+j.ReceivedRate)))})
	}
	return tabular(table.Row{"JOB", "PEER", "JOB SENT", "IN TUNNEL", "JOB GOT", "JOB SENDS", "WAN SENDS", "JOB GETS", "WAN GETS", "RATIO NOW"}, rows, func(table.Row) bool { return false })
}

// budgetRows is the table of budgets.
func budgetRows(x *Snapshot) []line {
	rows := []table.Row{}
	for _, b := range x.Plans {
		rows = append(rows, table.Row{of(b.Peer, b.Job), b.State, admin.Size(int64(b.Used)), admin.Size(int64(b.Limit)), admin.Size(int64(b.Projected)), seconds(b.Left), strings.Join(b.Then, ", "), b.Plan})
	}
	return tabular(table.Row{"BUDGET OF", "STATE", "USED", "LIMIT", "WHOLE DAY", "LEFT", "THEN", "PLAN"}, rows, func(r table.Row) bool { return r[1] != "within" })
}

// shadowRows is the table of the candidates of shadow mode, by peer, job and role.
func shadowRows(x *Snapshot) []line {
	rows := []table.Row{}
	for _, g := range x.Shadow.Groups {
		for _, c := range g.Candidates {
			money := ""
			if c.Money != nil {
				money = admin.Amount(c.Money.Saved, c.Money.Currency)
			}
			var doubts []string
			if float64(c.Early) > shadow.TolerablyEarly*float64(c.Raw) {
				doubts = append(doubts, "may still grow")
			}
			if float64(c.Near) > shadow.TolerablyNear*float64(c.Raw) {
				doubts = append(doubts, "is near the guard's limit")
			}
			note := ""
			if len(doubts) > 0 {
				note = "its residual " + strings.Join(doubts, ", and ")
			}
			rows = append(rows, table.Row{c.Codec, g.Peer, cmp.Or(g.Job, "(no job)"), g.Role, admin.Size(g.Raw), admin.Size(g.Wire), admin.Size(c.Predicted), ratio(over(g.Raw, c.Predicted)), fmt.Sprintf("%.3g", c.Error), fmt.Sprintf("%.3g", c.Residual), money, note})
		}
	}
	return tabular(table.Row{"CANDIDATE", "PEER", "JOB", "ROLE", "RAW", "NOW", "WOULD BE", "RATIO", "ERROR", "RESIDUAL", "WOULD SAVE", ""}, rows, func(table.Row) bool { return false })
}

func over(raw, wire int64) float64 {
	if wire == 0 {
		return 0
	}
	return float64(raw) / float64(wire)
}

func of(peer, job string) string {
	if job != "" {
		return "job " + job
	}
	return "peer " + peer
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func choice(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// savings writes the money of a link.
func savings(m *admin.Money) string {
	if m == nil {
		return ""
	}
	return strings.TrimSuffix(admin.Amount(m.Saved, m.Currency), " "+m.Currency) + " of " + admin.Amount(m.Saved+m.Spent, m.Currency)
}
