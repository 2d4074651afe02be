package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A screen shows a demo's progress: on a terminal as a table that fills, elsewhere as lines, of which a few a run, and the
// table at the end.
type screen struct {
	out   io.Writer
	live  bool
	steps int

	mu    sync.Mutex
	rows  []row
	at    int // the row under way
	drawn int // lines of the table on the terminal
}

// A row is what the table shows of a run.
type row struct {
	Run
	step    int     // done so far
	loss    float64 // of the last batch
	traffic traffic
	result  *Result // nil until the run is done
}

const (
	redraw = 250 * time.Millisecond // of a live table
	lines  = 5                      // of progress for each run, without a terminal
)

func newScreen(out io.Writer, o Options, runs []Run) *screen {
	s := &screen{out: out, steps: o.Steps, at: -1}
	for _, r := range runs {
		s.rows = append(s.rows, row{Run: r})
	}
	fmt.Fprintf(out, "A classifier of digits learns on %d ranks at two sites, %d steps, across a link of %v.\n", ranks, o.Steps, o.Link)
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		columns, _, err := term.GetSize(int(f.Fd()))
		s.live = err == nil && columns >= text.LongestLineLen(s.table())
	}
	return s
}

func (l Link) String() string {
	rate := "unlimited rate"
	switch {
	case l.Rate >= 1e9:
		rate = fmt.Sprintf("%.4g Gbit/s", float64(l.Rate)/1e9)
	case l.Rate > 0:
		rate = fmt.Sprintf("%.4g Mbit/s", float64(l.Rate)/1e6)
	}
	s := fmt.Sprintf("%s and %v round trip", rate, l.RTT)
	if l.Loss > 0 {
		s += fmt.Sprintf(", %.4g %% lost", 100*l.Loss)
	}
	return s
}

// begin shows that a run begins. carried says what its link has carried so far, there and back. The function returned
// ends it.
func (s *screen) begin(r Run, carried func() (there, back uint64)) (end func()) {
	s.mu.Lock()
	s.at++
	s.rows[s.at].traffic = traffic{carried: carried}
	s.rows[s.at].traffic.sample(time.Now())
	s.draw()
	s.mu.Unlock()
	stop := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { s.tick(stop) })
	return func() { close(stop); ticking.Wait() }
}

// tick samples the traffic of the run under way, and shows it.
func (s *screen) tick(stop chan struct{}) {
	t := time.NewTicker(redraw)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-t.C:
			s.mu.Lock()
			s.rows[s.at].traffic.sample(now)
			s.draw()
			s.mu.Unlock()
		}
	}
}

// step shows that a step of the run under way is done.
func (s *screen) step(loss float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.rows[s.at]
	r.step++
	r.loss = loss
	if !s.live && r.step*lines/s.steps > (r.step-1)*lines/s.steps {
		r.traffic.sample(time.Now())
		fmt.Fprintf(s.out, "%s %s: step %d of %d, loss %.3f, %s Mbit/s there, back\n", r.Wire, r.Name, r.step, s.steps, r.loss, r.traffic)
	}
}

// done shows a run's result.
func (s *screen) done(result Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[s.at].result = &result
	s.draw()
}

// end shows what has come of it all.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		fmt.Fprintln(s.out, s.table())
	}
	for _, r := range s.rows {
		if r.Name != Direct {
			fmt.Fprintln(s.out, verdict(*r.result))
		}
	}
}

// verdict says in a sentence how a run compares with the direct one.
func verdict(r Result) string {
	var bytes string
	switch {
	case r.Ratio >= 1.005:
		bytes = fmt.Sprintf("%.3g times fewer bytes", r.Ratio)
	case r.Ratio > 0.995:
		bytes = "as many bytes"
	default:
		bytes = fmt.Sprintf("%.3g times as many bytes", 1/r.Ratio)
	}
	var weights string
	switch {
	case r.SameAsDirect:
		weights = "all ranks end with exactly the weights of the direct run"
	case r.ReplicasIdentical:
		weights = "all ranks end with the same weights, bit for bit, though not those of the direct run"
	default:
		weights = fmt.Sprintf("the ranks' weights end %.2g apart, relative to their norm", r.ReplicaDistance)
	}
	return fmt.Sprintf("%s %s: %s, and %s.", r.Wire, r.Name, bytes, weights)
}

// draw replaces the table on a terminal. s.mu is held.
func (s *screen) draw() {
	if !s.live {
		return
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.drawn) // up to its first line, and clear from there
	}
	t := s.table()
	s.drawn = strings.Count(t, "\n") + 1
	fmt.Fprintln(&b, t)
	io.WriteString(s.out, b.String())
}

// table renders all rows.
func (s *screen) table() string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"run", "step", "loss", "link, Mbit/s", "seconds", "WAN, MB", "ratio", "accuracy", "replicas", "weights"})
	var right []table.ColumnConfig
	for column := 2; column <= 8; column++ {
		right = append(right, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	right = append(right, table.ColumnConfig{Number: 4, WidthMin: len("00.0 / 00.0"), Align: text.AlignRight})
	t.SetColumnConfigs(right)
	for _, r := range s.rows {
		t.AppendRow(r.cells(s.steps))
	}
	return t.Render()
}

// cells returns what is known so far.
func (r row) cells(steps int) table.Row {
	cells := table.Row{r.Wire + " " + r.Name}
	if r.traffic.carried == nil {
		return append(cells, "", "", "", "", "", "", "", "", "")
	}
	cells = append(cells, fmt.Sprintf("%d/%d", r.step, steps))
	if r.result == nil {
		loss := ""
		if r.step > 0 {
			loss = fmt.Sprintf("%.3f", r.loss)
		}
		return append(cells, loss, r.traffic, "", "", "", "", "", "")
	}
	replicas, weights := "identical", "as direct"
	if !r.result.ReplicasIdentical {
		replicas = fmt.Sprintf("%.2g apart", r.result.ReplicaDistance)
	}
	if r.Name == Direct {
		weights = ""
	} else if !r.result.SameAsDirect {
		weights = "differ"
	}
	return append(cells, fmt.Sprintf("%.3f", r.result.FinalLoss), r.traffic.mean(r.result.Seconds), fmt.Sprintf("%.1f", r.result.Seconds),
		fmt.Sprintf("%.1f", float64(r.result.WANBytes)/1e6), fmt.Sprintf("%.2f", r.result.Ratio),
		fmt.Sprintf("%.3f", r.result.Accuracy), replicas, weights)
}
