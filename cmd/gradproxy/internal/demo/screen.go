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

// A screen shows a demo's progress: on a terminal as a table that fills, elsewhere as a few lines a run, and the
// table at the end.
type screen struct {
	out     io.Writer
	live    bool
	columns int // of a live screen
	steps   int
	wires   []string

	mu    sync.Mutex
	rows  []row
	at    int // the row under way
	drawn int // lines of the table on the terminal
}

// A row is a run's row in the table.
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
	s := &screen{out: out, steps: o.Steps, wires: o.Wires, at: -1}
	for _, r := range runs {
		s.rows = append(s.rows, row{Run: r})
	}
	io.WriteString(out, introduction(o, runs))
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		columns, height, err := term.GetSize(int(f.Fd()))
		table := s.table()
		s.live, s.columns = err == nil && columns >= text.LongestLineLen(table) && height > strings.Count(table, "\n")+1, columns
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

// begin shows that a run begins. carried returns the bytes that its link has carried so far, there and back. The
// function returned ends it.
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
		fmt.Fprintf(s.out, "%s: step %d of %d, loss %.3f, %.1f s, %s\n", r.label(s.wires), r.step, s.steps, r.loss,
			r.traffic.elapsed().Seconds(), r.traffic)
	}
}

// done shows a run's result.
func (s *screen) done(result Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[s.at].result = &result
	s.draw()
}

// end shows the results of the runs that are done.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		fmt.Fprintf(s.out, "\n%s", s.table())
	}
	var direct Result
	for _, r := range s.rows {
		switch {
		case r.result == nil:
		case r.Name == Direct:
			direct = *r.result
		default:
			fmt.Fprintf(s.out, "\n%s\n", verdict(r.Run, r.label(s.wires), *r.result, direct))
		}
	}
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
	s.drawn = 0
	for line := range strings.Lines(s.table()) { // a line that wraps would not be cleared
		fmt.Fprintln(&b, text.Trim(strings.TrimSuffix(line, "\n"), s.columns))
		s.drawn++
	}
	io.WriteString(s.out, b.String())
}

// table renders all rows, a line each, in less than 80 columns if names are short.
func (s *screen) table() string {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	style.Box.PaddingLeft = ""
	const padding = "  "
	style.Box.PaddingRight = padding
	t.SetStyle(style)
	header := table.Row{"run", "step", "loss", "s", "MB", "ratio", "acc.", "weights"}
	t.AppendHeader(header)
	columns := []table.ColumnConfig{{Number: len(header), WidthMin: len("100/100 Mb/s")}}
	for number := 2; number < len(header); number++ {
		columns = append(columns, table.ColumnConfig{Number: number, WidthMin: len("100.0"), Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	columns[1].WidthMin = len("100/100")
	t.SetColumnConfigs(columns)
	for _, r := range s.rows {
		t.AppendRow(r.cells(s.wires, s.steps))
	}
	end := strings.Repeat(style.Box.MiddleHorizontal, len(padding)) // of the rule, behind the last column
	var b strings.Builder
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(&b, strings.TrimSuffix(strings.TrimRight(line, " \n"), end))
	}
	return b.String()
}

// cells returns the cells that are known so far.
func (r *row) cells(wires []string, steps int) table.Row {
	cells := table.Row{r.label(wires), "", "", "", "", "", "", ""}
	if r.traffic.carried == nil {
		return cells
	}
	cells[1] = fmt.Sprintf("%d/%d", r.step, steps)
	if f := r.result; f != nil {
		cells[2], cells[3], cells[4] = fmt.Sprintf("%.3f", f.FinalLoss), fmt.Sprintf("%.1f", f.Seconds), megabytes(f.WANBytes)
		cells[5], cells[6], cells[7] = fmt.Sprintf("%.2f", f.Ratio), fmt.Sprintf("%.3f", f.Accuracy), r.weights()
		return cells
	}
	if r.step > 0 {
		cells[2] = fmt.Sprintf("%.3f", r.loss)
	}
	cells[3], cells[4], cells[7] = fmt.Sprintf("%.1f", r.traffic.elapsed().Seconds()), megabytes(r.traffic.bytes()), r.traffic.String()
	return cells
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// weights says how the ranks' weights compare with each other, and with the direct run's.
func (r *row) weights() string {
	switch f := r.result; {
	case !f.ReplicasIdentical:
		return fmt.Sprintf("%.2g apart", f.ReplicaDistance)
	case f.SameAsDirect && r.Name != Direct:
		return "as direct"
	}
	return "identical"
}
