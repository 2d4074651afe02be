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

// The views have each figure of the page, on a terminal of 80 columns too, and of the jobs the rates of the last whole
// second.
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
		Candidates: []trials.Candidate{{Result: shadow.Result{Codec: "3lc", Error: 0.125, Residual: 2.5, Early: 1}, Predicted: 5e6, Money: &trials.Money{Currency: "USD", Saved: 3.5}},
			{Result: shadow.Result{Codec: "onebit", Raw: 100, Near: 6, Early: 10}}, {Result: shadow.Result{Codec: "dgc", Raw: 100, Near: 6, Early: 11}}}}}}
	x.past = &history.Table{Step: pastStep, Times: []int64{880, 890, 960}, Series: []history.Series{{Name: history.Name{Peer: "tokyo", Link: true}, Raw: []int64{6e6, 6e6, 42e6},
		Sent: []int64{1e6, 2e6, 6e6}, Delivered: []int64{9e6, 3e6, 0}, Received: []int64{1e6, 0, 0}, Down: []float32{0, 8.5, 0}}, {Name: history.Name{Peer: "tokyo", Job: "resnet"}, Raw: []int64{99e9, 99e9, 99e9}}}}
	screen := tcell.NewSimulationScreen("")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	screen.SetSize(80, 24)
	d := display{screen: screen, latest: x, wish: &wish{}}
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
		"site paris;APPS SEND;SAVED;tensors sent;overview (1 of 5)",
		"tokyo;up (dtls: faster);4.0 kB;81.0 MB;27.0 MB;82.0 MB;28.0 MB;2.96;12.0 MB/s;17;9.00 of 10.00 USD;tls to 192.0.2.1:7443;for 1m1s;1.23 %;bbr;5.0 kB;13.0 MB;14.0 MB;lima;outage for 3s",
		"resnet;tokyo;61.0 MB;21.0 MB;62.0 MB;51.0 MB/s;11.0 MB/s;52.0 MB/s;12.0 MB/s;4.48",
		"peer tokyo;will not last;20.0 GB;50.0 GB;60.0 GB;1h0m0s;int8;It ends at noon.;3lc;gradient;90.0 MB;70.0 MB;5.0 MB;18.00;0.125;2.5;3.50 USD;its residual may still grow;onebit;its residual is near the guard's limit;dgc;its residual may still grow, and is near the guard's limit",
		"tokyo;apps send;▃ █  at most 700.0 kB/s;▅ █  at most 100.0 kB/s;█ ▁  at most 200.0 kB/s;at most 16.7 kB/s;▒ ·  9s in all;the last hour (5 of 5)",
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
	press(tcell.KeyBacktab)
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

// Columns are minutes, of which the last may have just begun; what is older, or still to come, has none. A minute
// without a slot is not one in which nothing was sent.
func TestChartsOfTheLastHour(t *testing.T) {
	now := time.Unix(7200+30, 0)
	c := sums([]int64{3600 - 1, 3600 + 59, 3600 + 60, 7140, 7150, 7200, 7260}, []int64{1, 2, 4, 3, 5, 6, 7}, now)
	want := none()
	want[0], want[58], want[59] = 4, 8, 6
	if c.draw(digit) != want.draw(digit) {
		t.Errorf("%q, want %q", c.draw(digit), want.draw(digit))
	}
	if got := c.bars(); got != "▅"+strings.Repeat(" ", 57)+"█▆" {
		t.Errorf("bars %q", got)
	}
	zeros := sums([]int64{7200}, []float32{0}, now)
	if got := strings.TrimSpace(zeros.bars() + zeros.bands()); got != "▁"+strings.Repeat(" ", 59)+"·" {
		t.Errorf("of zeros %q", got)
	}
	down := sums([]int64{7080, 7140, 7200}, []float32{29, 30, 0}, now)
	if got := strings.TrimSpace(down.bands()); got != "▒█·" {
		t.Errorf("bands %q", got)
	}
	if l := latest([]int64{7140, 7150}, []float32{3, 5}, now); l[58] != 5 {
		t.Errorf("the last value of a minute is %v", l[58])
	}
	if got := axis("a peer's long name", time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)).text; got != "a peer's lo 11:01"+strings.Repeat(" ", 50)+"12:00" || len(got) != 12+minutes {
		t.Errorf("axis %q", got)
	}
}

func digit(v float64) rune { return rune('0' + int(v)) }

// Enter explains the tensor at the top of the list, with its history, Escape goes back to where the list was, and a
// tensor or a view asks for its own answers only.
func TestTensorsHistory(t *testing.T) {
	x := (&Sampler{}).next(time.Unix(1000, 0), status(4e6, 1e6, 0, 0), []proxy.TensorInfo{tensor(7, 4096, 3e6, 1e6), tensor(8, 4096, 2e6, 1e6), tensor(9, 4096, 1e6, 1e6)})
	for i := range x.Tensors {
		x.Tensors[i].ID = 10 + x.Tensors[i].Key
	}
	screen := tcell.NewSimulationScreen("")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	screen.SetSize(100, 30)
	d := display{screen: screen, latest: x, wish: &wish{}}
	press := func(k tcell.Key) bool { return d.heed(tcell.NewEventKey(k, 0, tcell.ModNone)) }
	shown := func() string {
		d.draw()
		cells, width, _ := screen.GetContents()
		var b strings.Builder
		for i, c := range cells {
			if i%width == 0 {
				b.WriteByte('\n')
			}
			b.WriteString(string(c.Runes))
		}
		return b.String()
	}
	press(tcell.KeyDown)
	if press(tcell.KeyEnter); d.wish.tensor.Load() != 18 || !strings.Contains(shown(), "it is being asked for") {
		t.Fatalf("tensor %d is asked for:\n%s", d.wish.tensor.Load(), shown())
	}
	y := *x
	y.chosen = &admin.Answer{Tensor: proxy.TensorInfo{ID: 18, From: "worker 1", Name: "key 8", Role: "gradient", DType: "float32", Codec: "3lc", Protocol: "pslite", Peer: "tokyo", Bytes: 4096},
		Explanation: admin.Explanation{Why: "It is coded by 3lc, " + strings.Repeat("as a rule says, ", 8) + "and-so-on.", Change: "It can travel exactly.", YAML: "policy:\n  - {codec: lossless}\n"},
		History:     &admin.TensorHistory{Step: 10, Times: []int64{880, 960}, Raw: []float32{6e6, 12e6}, Wire: []float32{3e6, 2e6}, Error: []float32{0.25, 0.5}, Residual: []float32{2, 1}}}
	d.view.paused = true
	d.take(sampled{snapshot: &y}) // a pause does not keep the answer away
	got := shown()
	for _, want := range []string{"worker 1 key 8: gradient, 4.1 kB of float32, 3lc, by pslite to tokyo", "and-so-on.", "It can travel exactly.", "      - {codec: lossless}", "▅ █  at most 200.0 kB/s", "█ ▆  at most 50.0 kB/s", "▃ █  at most 6.00", "▅ █  at most 0.5", "█ ▅  at most 2", "esc back"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	press(tcell.KeyDown)
	if press(tcell.KeyEscape) || d.view.offset != 1 || d.view.tensor != 0 || d.wish.tensor.Load() != 0 || !strings.Contains(shown(), "tensors sent") {
		t.Errorf("Escape leads to %+v:\n%s", d.view, shown())
	}
	press(tcell.KeyEnter)
	if press(tcell.KeyBacktab); d.view.page != past || d.view.tensor != 0 || !d.wish.past.Load() || d.wish.tensor.Load() != 0 {
		t.Errorf("another view: %+v", d.view)
	}
	if press(tcell.KeyTab); d.wish.past.Load() || !press(tcell.KeyEscape) {
		t.Errorf("the history is asked for in view %+v", d.view)
	}
}
