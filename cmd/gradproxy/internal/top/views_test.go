package top

import (
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// The views have each figure of the page, on a terminal of 80 columns too, and of the jobs the rates of the last whole second.
func TestViewsHaveThePagesFigures(t *testing.T) {
	x := (&Sampler{}).next(time.Unix(1000, 0), status(4e6, 1e6, 0, 0), nil)
	column := func(rate int64) []int64 { return []int64{7, rate, 9} }
	x.take(&admin.Live{
		Peers: []admin.Peer{{Name: "tokyo", Up: true, Choice: "dtls: faster", RTT: 0.0801, Goodput: 12e6, Unconfirmed: 4000, Outages: 17, Raw: 81e6, Sent: 27e6, Delivered: 82e6, Received: 28e6, Money: &admin.Money{Currency: "USD", Price: 0.09, Spent: 1, Saved: 9},
			Carriers: []admin.Carrier{{Carrier: "tls", Congestion: "bbr", Remote: "192.0.2.1:7443", Age: 61, RTT: 0.0812, Loss: 0.0123, Backlog: 5000, Sent: 13e6, Received: 14e6}}}, {Name: "lima", Outage: 3}},
		Jobs:    []proxy.Traffic{{Peer: "tokyo", Job: "resnet", Raw: 61e6, Wire: 21e6, Delivered: 62e6}},
		Points:  []history.Table{{Step: 1, Times: []int64{1, 2, 3}, Series: []history.Series{{Name: history.Name{Peer: "tokyo", Job: "resnet"}, Raw: column(51e6), Sent: column(11e6), Delivered: column(52e6), Received: column(12e6)}}}},
		Budgets: []admin.Budget{{Peer: "tokyo", Limit: 50e9, Used: 20e9, Projected: 60e9, Left: 3600, State: "will not last", Then: []string{"int8"}, Plan: "It ends at noon."}},
	})
	x.Shadow = &trials.Report{Groups: []trials.Group{{Peer: "tokyo", Job: "resnet", Role: "gradient", Raw: 90e6, Wire: 70e6,
		Candidates: []trials.Candidate{{Result: shadow.Result{Codec: "3lc", Error: 0.125, Residual: 2.5, Early: 1}, Predicted: 5e6, Money: &trials.Money{Currency: "USD", Saved: 3.5}}}}}}
	screen := tcell.NewSimulationScreen("")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	screen.SetSize(80, 24)
	d := display{screen: screen, latest: x}
	press := func(k tcell.Key) { d.heed(tcell.NewEventKey(k, 0, tcell.ModNone)) }
	// everything puts together all that a view shows while its columns move.
	everything := func() string {
		var b strings.Builder
		for range 10 {
			d.draw()
			cells, width, _ := screen.GetContents()
			for i, c := range cells {
				if i%width == 0 {
					b.WriteByte('\n')
				}
				b.WriteString(string(c.Runes))
			}
			press(tcell.KeyRight)
		}
		for range 10 {
			press(tcell.KeyLeft)
		}
		return b.String()
	}
	for i, want := range []string{
		"site paris;APPS SEND;SAVED;tensors sent;overview (1 of 4)",
		"tokyo;up (dtls: faster);4.0 kB;81.0 MB;27.0 MB;82.0 MB;28.0 MB;2.96;12.0 MB/s;17;9.00 of 10.00 USD;tls to 192.0.2.1:7443;for 1m1s;1.23 %;bbr;5.0 kB;13.0 MB;14.0 MB;lima;outage for 3s",
		"resnet;tokyo;61.0 MB;21.0 MB;62.0 MB;51.0 MB/s;11.0 MB/s;52.0 MB/s;12.0 MB/s;4.48",
		"peer tokyo;will not last;20.0 GB;50.0 GB;60.0 GB;1h0m0s;int8;It ends at noon.;3lc;gradient;90.0 MB;70.0 MB;5.0 MB;18.00;0.125;2.5;3.50 USD;its residual may still grow",
	} {
		got := everything()
		for _, text := range strings.Split(want, ";") {
			if !strings.Contains(got, text) {
				t.Errorf("view %d has no %q", i+1, text)
			}
		}
		if t.Failed() {
			t.Fatal(got)
		}
		press(tcell.KeyTab)
	}
	if press(tcell.KeyBacktab); d.view.page != plans || !strings.Contains(everything(), "CANDIDATE") {
		t.Errorf("view %d", d.view.page)
	}
	for range 3 {
		press(tcell.KeyDown)
	}
	if got := everything(); !strings.Contains(got, "BUDGET OF") || strings.Contains(got, "peer tokyo") {
		t.Errorf("not scrolled:\n%s", got)
	}
}
