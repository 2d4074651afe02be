package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
)

// status is a proxy with one peer.
func status(raw, sent, delivered, received int64) *adminclient.Status {
	traffic := adminclient.Traffic{Sent: sent, Received: received}
	return &adminclient.Status{Readiness: admin.Readiness{Site: "paris", Version: "v1"}, Connections: 2, Raw: raw, Delivered: delivered, Network: traffic,
		Peers: []adminclient.Peer{{Name: "tokyo", Up: true, RTT: 0.05, Raw: raw, Delivered: delivered, Network: traffic, Money: &adminclient.Money{Currency: "USD", Spent: 1, Saved: 9}}}}
}

func tensor(key uint64, bytes int, raw, wire int64) proxy.TensorInfo {
	return proxy.TensorInfo{Job: "resnet", Protocol: "pslite", Key: key, Bytes: bytes, DType: "float32", Role: "gradient", Codec: "3lc", Reason: "ok", RawBytes: raw, WireBytes: wire}
}

// Rates are of the time between two answers, also of a tensor whose size changes and of one that is new; a proxy that
// was started anew has none.
func TestRates(t *testing.T) {
	s := &Sampler{Limit: 3}
	at := time.Unix(1000, 0)
	if x := s.next(at, status(1000, 100, 0, 50), []proxy.TensorInfo{tensor(1, 8, 500, 50)}); x.Seconds != 0 || x.Links[0].Raw != 0 || x.Tensors[0].Rate != 0 || x.Tensors[0].Ratio != 10 {
		t.Errorf("the first: %+v %+v", x.Links, x.Tensors)
	}
	at = at.Add(2 * time.Second)
	x := s.next(at, status(5000, 500, 600, 200), []proxy.TensorInfo{tensor(1, 16, 900, 90), tensor(0, 4, 4000, 0), tensor(0, 8, 100, 1), tensor(4, 8, 0, 0)})
	if l := x.Links[0]; x.Seconds != 2 || l.Raw != 2000 || l.Sent != 200 || l.Got != 300 || l.Received != 75 || l.Ratio != 8 {
		t.Errorf("rates of the link: %+v", l)
	}
	if len(x.Tensors) != 3 || x.Tensors[0].Rate != 2000 || x.Tensors[1].Rate != 200 || x.Tensors[1].Key != 1 || x.Tensors[2].Rate != 50 {
		t.Errorf("rates of tensors: %+v", x.Tensors)
	}
	if x := s.next(at.Add(time.Second), status(10, 10, 0, 0), []proxy.TensorInfo{tensor(1, 16, 9, 9)}); x.Links[0].Raw != 0 || x.Tensors[0].Rate != 0 {
		t.Errorf("after a restart: %+v %+v", x.Links, x.Tensors)
	}
}

func lines(all []line) string {
	var b strings.Builder
	for _, l := range all {
		fmt.Fprintln(&b, l.text)
	}
	return b.String()
}

// The text has the numbers, says faults, and has never more lines than fit.
func TestText(t *testing.T) {
	s := &Sampler{}
	at := time.Unix(1000, 0)
	s.next(at, status(0, 0, 0, 0), nil)
	now := status(4e6, 1e6, 0, 0)
	now.Checks = []admin.Result{{Name: "drain", OK: true}, {Name: "peer/virginia", Error: "no tunnel has come up"}}
	x := s.next(at.Add(time.Second), now, []proxy.TensorInfo{tensor(7, 4096, 3e6, 1e6), tensor(8, 4096, 1e6, 1e6)})
	got := lines(text(x, view{}, 40))
	for _, want := range []string{"site paris", "✗ peer/virginia: no tunnel has come up", "tokyo  up", "4.0 MB/s", "1.0 MB/s", "4.00", "9.00 of 10.00 USD", "resnet", "3.0 MB/s", "3.00", "0000000000000007", "ordered by rate"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "drain") {
		t.Errorf("a check that holds is listed:\n%s", got)
	}
	worst := lines(text(x, view{order: byRatio, fault: errors.New("no proxy answers")}, 40))
	if strings.Index(worst, "0000000000000008") > strings.Index(worst, "0000000000000007") || !strings.Contains(worst, "no proxy answers") {
		t.Errorf("by ratio, with a fault:\n%s", worst)
	}
	for height := range 30 {
		if n := len(text(x, view{}, height)); n > max(height, 1) {
			t.Errorf("%d lines where %d fit", n, height)
		}
	}
	for offset := range 5 { // beyond the end too
		text(x, view{offset: offset}, 20)
	}
	now.Peers[0].Up, now.Peers[0].Outage = false, 3.21
	if got := lines(text(x, view{}, 40)); !strings.Contains(got, "outage for 3.2s") {
		t.Errorf("no outage in\n%s", got)
	}
}

// A terminal of any size shows the lines that fit, keys act, and nothing of a name reaches the terminal as a control
// sequence.
func TestDisplay(t *testing.T) {
	s := &Sampler{}
	evil := tensor(9, 4096, 5, 5)
	evil.Job = "\x1b[2Jjob\u009b"
	x := s.next(time.Unix(1000, 0), status(4e6, 1e6, 0, 0), []proxy.TensorInfo{tensor(7, 4096, 3e6, 1e6), evil})
	screen := tcell.NewSimulationScreen("")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	d := display{screen: screen, latest: x, wish: &wish{}}
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
	for _, size := range [][2]int{{1, 1}, {3, 200}, {200, 3}, {140, 30}} {
		screen.SetSize(size[0], size[1])
		if d.heed(tcell.NewEventResize(size[0], size[1])) {
			t.Error("a change of size quits")
		}
		shown()
	}
	if got := shown(); !strings.Contains(got, "site paris") || !strings.Contains(got, "?[2Jjob?") || strings.ContainsAny(got, "\x1b\u009b") || !strings.Contains(got, "q quit") {
		t.Errorf("shown:\n%s", got)
	}
	press := func(r rune) bool { return d.heed(tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone)) }
	if press('s'); d.view.order != byBytes || !strings.Contains(shown(), "ordered by bytes") {
		t.Errorf("order %v", d.view.order)
	}
	for range 5 {
		d.heed(tcell.NewEventKey(tcell.KeyDown, 0, tcell.ModNone))
	}
	if d.view.offset != 1 {
		t.Errorf("scrolled to %d of 2 tensors", d.view.offset)
	}
	d.heed(tcell.NewEventKey(tcell.KeyPgUp, 0, tcell.ModNone))
	press('p')
	d.take(sampled{snapshot: s.next(time.Unix(1001, 0), status(0, 0, 0, 0), nil)})
	if d.latest != x || d.view.offset != 0 || !strings.Contains(shown(), "(paused)") {
		t.Error("a pause does not hold")
	}
	d.take(sampled{err: errors.New("nobody answers")})
	if !strings.Contains(shown(), "nobody answers") {
		t.Error("the fault is not shown")
	}
	if !press('q') || !d.heed(tcell.NewEventKey(tcell.KeyCtrlC, 0, tcell.ModCtrl)) {
		t.Error("q and Ctrl-C do not quit")
	}
}

// A name from the network takes one cell of one line.
func TestNamesKeepToTheirCell(t *testing.T) {
	var row Tensor
	row.Name, row.Shape = "a\nb\u202ec\x1b[2J", "2×3"
	if got := name(&row); got != "a?b?c?[2J 2×3" {
		t.Errorf("%q", got)
	}
}
