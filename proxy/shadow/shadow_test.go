package shadow

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// fakes are Trials that keep all values, and take a time for each.
type fakes struct {
	mu     sync.Mutex
	values []value
	takes  time.Duration
	used   time.Duration // of a processor for each; 0: all that it takes
	warm   int           // values of each line that are exact
	open   int           // lines
	closed int           // trials
	stuck  chan struct{}
	short  bool
	grows  int // values of a piece in which its residual and its encodings grow
	seen   map[uint64]int
}

type value struct {
	key  uint64
	data []byte
	runs []Run
}

type fake struct{ *fakes }

func (f fake) Line(policy.Flow, string, []string) Line {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return &fakeLine{f.fakes, f.warm}
}

func (f fake) Short() bool { return f.short }

func (f fake) Limit() float64 { return 16 }

func (f fake) Close() { f.mu.Lock(); f.closed++; f.mu.Unlock() }

type fakeLine struct {
	*fakes
	warm int
}

func (l *fakeLine) Close() { l.mu.Lock(); l.open--; l.mu.Unlock() }

func (l *fakeLine) Send(t tensor.Tensor, data []byte, runs []Run) (Measure, error) {
	if l.stuck != nil {
		<-l.stuck
	}
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = append(l.values, value{t.Key, data, runs})
	m := Measure{Raw: int64(len(data)), Wire: int64(len(data)) / 10, Measured: 1, Error: 0.5}
	if l.grows > 0 {
		l.seen[t.Key]++
		grown := min(l.seen[t.Key], l.grows)
		m.Wire, m.Residual = m.Wire*int64(grown)/int64(l.grows), float64(grown)
	}
	if l.warm > 0 {
		l.warm--
		m.Exact, m.Wire = true, m.Raw
	}
	return m, nil
}

func start(t *testing.T, f *fakes, c Config) (*Shadow, *Current) {
	t.Helper()
	c.Trial = func(string, int64) (Trial, error) { return fake{f}, nil }
	begin := time.Now()
	c.Used = func() time.Duration {
		if f.used == 0 {
			return time.Since(begin)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return time.Duration(len(f.values)) * f.used
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := new(Current)
	h.Store(s)
	return s, h
}

func gradient(key uint64, size int) tensor.Tensor {
	return tensor.Tensor{Key: key, Role: tensor.Gradient, DType: tensor.Float32, Size: size, Hold: size}
}

// send shows a whole value in one piece.
func send(c *Conn, t tensor.Tensor, b []byte) { c.See(policy.Flow{}, &t, b) }

// The values that count are the ones after the candidate was used for a while and its residual has settled; the results
// are their sums.
func TestOnlySettledValuesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{warm: 5, takes: time.Microsecond}
		s, h := start(t, f, Config{Codecs: []string{"a", "b"}, Memory: 1 << 26, Share: 1})
		c := NewConn(h, "far", nil)
		const n = 40
		b := make([]byte, 4096)
		for range n {
			send(c, gradient(7, len(b)), b)
			time.Sleep(time.Second)
		}
		r := s.Results().Of(Name{Direction: "from_client", Key: 7, Role: tensor.Gradient, Size: len(b)})
		if len(r) != 2 {
			t.Fatalf("%+v", r)
		}
		want := int64(n-1-5-settling) * 4096 // the first value only tells that the tensor comes
		for _, x := range r {
			if x.Raw != want || x.Wire != want/4096*409 || x.Error != 0.5 {
				t.Errorf("%+v, want %d bytes", x, want)
			}
		}
		if st := s.Stats(); st.Values != n-1 || st.Dropped != 0 {
			t.Errorf("%+v", st)
		}
		s.Close()
		if f.closed != 2 {
			t.Errorf("%d trials are closed", f.closed)
		}
	})
}

// Values count from the first period on after which the residual, and encodings with it, are hardly larger. Until then
// the latest count, and are said to be early.
func TestResidualsSettle(t *testing.T) {
	for name, c := range map[string]struct {
		residual         func(value int) float64
		values, lines    int
		want, early      int
		enough, patience bool
	}{
		"no residual":                     {func(int) float64 { return 0 }, 32, 1, 24, 0, true, false},
		"one value less":                  {func(int) float64 { return 0 }, 31, 1, 23, 0, false, false},
		"the same residual all the time":  {func(int) float64 { return 2 }, 48, 1, 40, 0, true, false},
		"like the one before by chance":   {func(v int) float64 { return []float64{3, 3, 3, 6, 12, 12, 12}[bits.Len(uint(v/8))] }, 300, 1, 300 - 64, 0, true, false},
		"grows":                           {func(v int) float64 { return float64(v) }, 200, 1, 200 - 128, 200 - 128, false, false},
		"grows until value 60":            {func(v int) float64 { return float64(min(v, 60)) }, 400, 1, 400 - 64, 0, true, false},
		"the same, not for long":          {func(v int) float64 { return float64(min(v, 60)) }, 191, 1, 191 - 128, 191 - 128, false, false},
		"of three connections":            {func(v int) float64 { return float64(min(v, 180)) }, 1200, 3, 1200 - 192, 0, true, false},
		"grows without end":               {func(v int) float64 { return float64(v) }, tired, 1, 1024, 1024, true, false},
		"was never used":                  {func(int) float64 { return 0 }, patience + counted, 1, counted, 0, true, true},
		"has only values that count not":  {func(int) float64 { return 0 }, settling, 1, 0, 0, false, false},
		"has only a few values that come": {func(int) float64 { return 0 }, settling + 3, 1, 3, 3, false, false},
	} {
		var a account
		counts := make([]count, c.lines)
		for v := range c.values {
			a.add(&Measure{Raw: 1000, Wire: int64(10 * c.residual(v)), Measured: 1, Residual: c.residual(v), Exact: c.patience}, &counts[v%c.lines])
		}
		if s := a.sum(); s.Raw != int64(c.want)*1000 || s.Early != int64(c.early)*1000 || a.enough(c.lines) != c.enough {
			t.Errorf("%s: %d values count and %d are early, want %d and %d; enough %v", name, s.Raw, s.Early, c.want, c.early, a.enough(c.lines))
		}
	}
}

// A period in which nothing was measured, since all blocks were guarded, does not pass for one without a residual. A
// lossless candidate is never measured, and has settled at once.
func TestGuardedPeriodsTellNothing(t *testing.T) {
	const values = 400
	never := func(int) bool { return false }
	for name, c := range map[string]struct {
		residual    func(value int) float64
		measured    int
		guarded     func(value int) bool
		want, early int
	}{
		"grows, and is guarded for a while": {func(v int) float64 { return float64(v) }, 1, func(v int) bool { return v >= 16 && v < 64 }, values - 256, values - 256},
		"is guarded all the time":           {func(v int) float64 { return float64(v) }, 1, func(v int) bool { return true }, values - 256, values - 256},
		"is guarded, and then settles":      {func(v int) float64 { return float64(min(v, 60)) }, 1, func(v int) bool { return v < 64 }, values - 64, 0},
		"is guarded once it has settled":    {func(v int) float64 { return float64(min(v, 20)) }, 1, func(v int) bool { return v >= 64 }, values - 16, 0},
		"loses nothing":                     {func(v int) float64 { return 0 }, 0, never, values - 8, 0},
	} {
		var a account
		var n count
		for v := range values {
			m := Measure{Raw: 1000, Wire: int64(10 * c.residual(v)), Measured: c.measured, Residual: c.residual(v)}
			if c.guarded(v) {
				m = Measure{Raw: 1000, Wire: 1000, Behind: 1}
			}
			a.add(&m, &n)
		}
		if s := a.sum(); s.Raw != int64(c.want)*1000 || s.Early != int64(c.early)*1000 {
			t.Errorf("%s: %d values count and %d are early, want %d and %d", name, s.Raw, s.Early, c.want, c.early)
		}
	}
}

// onePiece is as much memory as the window of a piece needs for each candidate, and too little for two pieces.
const onePiece = 2 << 20

// While there is time and memory, all of a tensor is sampled, by a window that does not end: its residual grows as on
// the path. Where another tensor waits, pieces take turns.
func TestWholeTensors(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		role    tensor.Role
		takes   time.Duration
		tensors int
		want    int // bytes of the largest value
	}{
		"time":                   {3 * pieceSize, tensor.Gradient, time.Microsecond, 1, 3 * pieceSize},
		"no time":                {3 * pieceSize, tensor.Gradient, 8 * time.Millisecond, 1, pieceSize},
		"too many pieces":        {(maxPieceSums + 1) * pieceSize, tensor.Gradient, time.Microsecond, 1, pieceSize},
		"weights, known by base": {3 * pieceSize, tensor.State, time.Microsecond, 1, pieceSize},
		"others wait":            {3 * pieceSize, tensor.Gradient, 8 * time.Millisecond, 8, pieceSize},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakes{takes: c.takes}
				s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 0.02})
				defer s.Close()
				conn := NewConn(h, "far", nil)
				b := make([]byte, c.size)
				for range 200 {
					for key := range uint64(c.tensors) {
						x := gradient(key+1, c.size)
						x.Role, x.Base = c.role, key+1
						send(conn, x, b)
					}
					time.Sleep(time.Second / 5)
				}
				largest, whole := 0, 0
				f.mu.Lock()
				for _, v := range f.values[len(f.values)/2:] {
					if largest = max(largest, len(v.data)); len(v.data) == c.size {
						whole++
					}
				}
				f.mu.Unlock()
				if largest != c.want {
					t.Errorf("values of %d bytes are tried, want %d", largest, c.want)
				}
				if c.want == c.size {
					if f.open != 1 || whole < 90 {
						t.Errorf("%d windows are open, and of the last 100 values %d were tried as a whole", f.open, whole)
					}
					x := s.Results().Of(Name{Direction: "from_client", Key: 1, Role: c.role, Size: c.size})
					if len(x) != 1 || x[0].Raw != int64(200-1-settling)*int64(c.size) || x[0].Early > 0 {
						t.Errorf("%+v", x)
					}
				}
			})
		})
	}
}

// Time is not left over while a tensor waits, also once the tensors that were refused have had as many windows as the
// others.
func TestTurnsFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{takes: time.Millisecond}
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: onePiece, Share: 0.025})
		defer s.Close()
		c := NewConn(h, "far", nil)
		b := make([]byte, 2*pieceSize)
		for second := range 60 {
			before := s.Stats().Values
			for range 20 {
				for key := range uint64(2) {
					send(c, gradient(key+1, len(b)), b)
				}
				time.Sleep(time.Second / 20)
			}
			if n := s.Stats().Values - before; second > 0 && n < 15 {
				t.Fatalf("%d values are tried in second %d, though there was time for 25", n, second)
			}
		}
	})
}

// Where residuals wait from window to window, one that takes longer to settle than a window lasts settles over several,
// and until then all its values are said to be early. Where they are lost, a window lasts until the residual has
// settled.
func TestResidualsWait(t *testing.T) {
	for _, short := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakes{takes: time.Microsecond, grows: 200, seen: map[uint64]int{}, short: short}
			s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: onePiece, Share: 1})
			defer s.Close()
			c := NewConn(h, "far", nil)
			b := make([]byte, 2*pieceSize)
			result := func(values int) Result {
				for range values {
					send(c, gradient(7, len(b)), b)
					time.Sleep(time.Millisecond)
				}
				return s.Results().Of(Name{Direction: "from_client", Key: 7, Role: tensor.Gradient, Size: len(b)})[0]
			}
			part := func(r Result) float64 { return 10 * float64(r.Wire) / float64(r.Raw) }
			if r := result(2 * 140); r.Early != r.Raw || !short && part(r) > 0.8 {
				t.Errorf("short %v: after 140 values of a piece: %+v", short, r)
			}
			if want := map[bool]int{false: 2, true: 1}[short]; pieces(f) != want {
				t.Errorf("short %v: %d pieces have had windows, want %d", short, pieces(f), want)
			}
			if r := result(2 * 600); r.Early > 0 || part(r) < 0.95 {
				t.Errorf("short %v: after 740 values of a piece: %+v", short, r)
			}
		})
	}
}

// pieces returns how many pieces fakes have coded.
func pieces(f *fakes) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

// Candidates whose residuals have settled leave three windows of four to one whose residual still grows.
func TestSettledCandidatesLeaveTimeToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, slow := &fakes{takes: time.Microsecond, grows: 1, seen: map[uint64]int{}}, &fakes{takes: time.Microsecond, grows: 1500, seen: map[uint64]int{}}
		begin := time.Now()
		s, err := New(Config{Codecs: []string{"quick", "slow"}, Memory: 2 * onePiece, Share: 1, Used: func() time.Duration { return time.Since(begin) },
			Trial: func(codec string, _ int64) (Trial, error) {
				return fake{map[string]*fakes{"quick": quick, "slow": slow}[codec]}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		h := new(Current)
		h.Store(s)
		c := NewConn(h, "far", nil)
		b := make([]byte, 2*pieceSize)
		for range 1 + 2*8*windowValues {
			send(c, gradient(7, len(b)), b)
			time.Sleep(time.Millisecond)
		}
		results := s.Results().Of(Name{Direction: "from_client", Key: 7, Role: tensor.Gradient, Size: len(b)})
		s.Close()
		if q, s := len(quick.values), len(slow.values); s != 2*8*windowValues || q != 2*2*windowValues {
			t.Errorf("of 8 windows of each piece the slow candidate has coded %d values and the quick one %d, want %d and %d", s, q, 2*8*windowValues, 2*2*windowValues)
		}
		for _, x := range results {
			if x.Codec == "quick" && (x.Raw != 2*pieceSize*(2*windowValues-settling-waited) || x.Early > 0) {
				t.Errorf("%+v", x)
			}
		}
	})
}

// The time for which other programs hold up the trials is not the trials' own: a busy machine has as many values tried
// as another.
func TestOtherProgramsTakeNoShare(t *testing.T) {
	tried := func(busy time.Duration) (values int64) {
		synctest.Test(t, func(t *testing.T) {
			f := &fakes{takes: 3*time.Millisecond + busy}
			f.used = 3 * time.Millisecond
			s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 0.02})
			defer s.Close()
			c := NewConn(h, "far", nil)
			b := make([]byte, 64<<10)
			for range 2000 {
				send(c, gradient(7, len(b)), b)
				time.Sleep(time.Second / 20)
			}
			values = s.Stats().Values
		})
		return values
	}
	alone, busy := tried(0), tried(9*time.Millisecond)
	if alone < 500 || float64(busy) < 0.9*float64(alone) {
		t.Errorf("%d values are tried, and %d on a busy machine", alone, busy)
	}
}

// Windows that have settled are worth more than early ones of the same piece, in whichever order they come. A piece
// that has early ones alone counts as well, since pieces differ.
func TestEarlySumsGiveWay(t *testing.T) {
	early, settled := Measure{Raw: 10, Wire: 1, Early: 10}, Measure{Raw: 10, Wire: 5}
	for name, c := range map[string]struct {
		pieces [][]Measure // windows by piece
		want   Measure
	}{
		"early":           {[][]Measure{{early, early}}, Measure{Raw: 20, Wire: 2, Early: 20}},
		"then settled":    {[][]Measure{{early, settled}}, settled},
		"settled first":   {[][]Measure{{settled, early}}, settled},
		"settled twice":   {[][]Measure{{settled, early, settled}}, Measure{Raw: 20, Wire: 10}},
		"pieces":          {[][]Measure{{early}, {settled}}, Measure{Raw: 20, Wire: 6, Early: 10}},
		"pieces of early": {[][]Measure{{early}, {early}}, Measure{Raw: 20, Wire: 2, Early: 20}},
	} {
		w := window{id: Identity{Size: len(c.pieces) * pieceSize}}
		for _, windows := range c.pieces {
			var m Measure
			for _, x := range windows {
				m.settle(&x)
			}
			w.parts = append(w.parts, part{sums: []Measure{m}})
		}
		if got := w.sum(0); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A connection that joins others has its first values left out as theirs were, and theirs go on counting as before.
func TestConnectionsThatJoinBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{warm: 8, takes: time.Microsecond}
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 1})
		defer s.Close()
		b := make([]byte, 4096)
		values := func(c *Conn, n int) {
			for range n {
				send(c, gradient(7, len(b)), b)
				time.Sleep(time.Millisecond)
			}
		}
		counts := func(when string, want int64) {
			t.Helper()
			r := s.Results().Of(Name{Direction: "from_client", Key: 7, Role: tensor.Gradient, Size: len(b)})
			if len(r) != 1 || r[0].Raw != want*4096 || r[0].Wire != want*409 || r[0].Early != 0 {
				t.Errorf("%s: %+v, want %d values", when, r, want)
			}
		}
		first := NewConn(h, "far", nil)
		values(first, 1+8+settling+400)
		counts("one connection", 400)
		for range maxLanes - 1 {
			values(NewConn(h, "far", nil), 8)
		}
		counts("others have joined", 400)
		values(first, 100)
		counts("the first goes on", 500)
	})
}

// Connections that end leave their places to the next ones, however many there are: their values are tried and count,
// and windows end.
func TestShortConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{warm: 1, takes: time.Microsecond}
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: onePiece, Share: 1})
		defer s.Close()
		b := make([]byte, 2*pieceSize)
		const conns, values = 4 * maxLanes, 3
		for range conns {
			c := NewConn(h, "far", nil)
			for range values {
				send(c, gradient(7, len(b)), b)
				time.Sleep(10 * time.Millisecond)
			}
			c.Close()
		}
		synctest.Wait()
		w, _ := s.known.Use(Identity{Peer: "far", Key: 7, Role: tensor.Gradient, DType: tensor.Float32, Size: len(b)})
		if got, want := w.windows, conns*values/windowValues-1; got < want {
			t.Errorf("%d windows have ended, want %d", got, want)
		}
		if f.open > 1 || s.Stats().Values != conns*values-1 {
			t.Errorf("%d lines are open, and of %d values %d were tried", f.open, conns*values, s.Stats().Values)
		}
		r := s.Results().Of(Name{Direction: "from_client", Key: 7, Role: tensor.Gradient, Size: len(b)})
		if len(r) != 1 || r[0].Raw == 0 || r[0].Early > 0 {
			t.Fatalf("%+v", r)
		}
		if part := float64(r[0].Wire) / float64(r[0].Raw); part < 0.35 || part > 0.45 {
			t.Errorf("%.2f of the bytes, want 0.40, since one value of three travels exactly", part)
		}
	})
}

// Of more connections than a window has room for the first are tried, and no value of another is taken for one that
// was. One that has fallen silent leaves its place.
func TestMoreConnectionsThanLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{takes: time.Millisecond}
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 1})
		defer s.Close()
		b := make([]byte, 4096)
		var all []*Conn
		for range 2 * maxLanes {
			all = append(all, NewConn(h, "far", nil))
		}
		send(all[0], gradient(7, len(b)), b)
		tried := func(conns []*Conn, rounds int) int64 {
			before := s.Stats().Values
			for range rounds {
				for _, c := range conns {
					send(c, gradient(7, len(b)), b)
					time.Sleep(10 * time.Millisecond)
				}
			}
			synctest.Wait()
			return s.Stats().Values - before
		}
		const rounds = windowValues
		if n := tried(all, rounds); n != rounds*maxLanes || int(n) != len(f.values) {
			t.Errorf("%d values of %d connections were tried, and %d are counted", len(f.values), len(all), n)
		}
		if each := 1e-3 / float64(len(b)); s.perByte < each*0.99 || s.perByte > each*1.01 {
			t.Errorf("a byte is thought to take %.3g s, want %.3g", s.perByte, each)
		}
		var w *window
		for w = range s.active {
		}
		if w == nil || !w.whole {
			t.Error("the window has not counted enough")
		}
		late := all[maxLanes:]
		tried(late, int(silent/time.Second)*100/maxLanes+2)
		if n := tried(late, 1); n != maxLanes || f.open != maxLanes {
			t.Errorf("%d of %d connections are tried once the others are silent, over %d lines", n, len(late), f.open)
		}
	})
}

// A goroutine that is stuck holds nobody up: values are dropped, counted, and take no more memory than was given.
func TestSeeNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{stuck: make(chan struct{})}
		const memory = 4 << 20
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: memory, Share: 1})
		c := NewConn(h, "far", nil)
		b := make([]byte, 64<<10)
		begin := time.Now()
		const n = 200
		for range n {
			send(c, gradient(7, len(b)), b)
		}
		if took := time.Since(begin); took > 0 { // time stands still in a bubble unless all wait
			t.Errorf("%v for %d values that nobody takes", took, n)
		}
		s.mu.Lock()
		queued, dropped := s.queued, s.stats.Dropped
		s.mu.Unlock()
		if queued > memory/4 || dropped < n-1-memory/4/int64(len(b))-1 {
			t.Errorf("%d bytes wait, %d values were dropped", queued, dropped)
		}
		close(f.stuck)
		s.Close()
	})
}

// However much comes, trials take their share of a core and no more.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{takes: 3 * time.Millisecond}
		const share = 0.02
		s, h := start(t, f, Config{Codecs: []string{"a", "b"}, Memory: 1 << 26, Share: share})
		c := NewConn(h, "far", nil)
		b := make([]byte, 100<<10)
		const seconds = 120
		for range seconds * 20 {
			for key := range uint64(5) {
				send(c, gradient(key+1, len(b)), b)
			}
			time.Sleep(time.Second / 20)
		}
		st := s.Stats()
		if got := st.Spent.Seconds() / seconds; got > share*1.05 || got < share/4 {
			t.Errorf("trials took %.4f of a core, want %v at most: %+v", got, share, st)
		}
		s.Close()
	})
}

// Where there is no time for all tensors they take turns, in windows of consecutive values, and all have theirs.
func TestTensorsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{takes: 2 * time.Millisecond}
		s, h := start(t, f, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 0.01})
		c := NewConn(h, "far", nil)
		const tensors, size = 12, 64 << 10
		b := make([]byte, size)
		for range 2500 {
			for key := range uint64(tensors) {
				send(c, gradient(key+1, size), b)
			}
			time.Sleep(time.Second)
		}
		r := s.Results()
		for key := range uint64(tensors) {
			if x := r.Of(Name{Direction: "from_client", Key: key + 1, Role: tensor.Gradient, Size: size}); len(x) == 0 || x[0].Raw < counted*size/2 {
				t.Errorf("tensor %d: %+v", key+1, x)
			}
		}
		f.mu.Lock()
		runs, last := 0, uint64(0)
		for _, v := range f.values {
			if v.key != last {
				runs, last = runs+1, v.key
			}
		}
		if f.open > 7 {
			t.Errorf("%d windows are open", f.open)
		}
		f.mu.Unlock()
		s.mu.Lock()
		if s.demand > s.config.Share*tooMuch && len(s.active) > 1 {
			t.Errorf("%d windows ask for %.3f of a core", len(s.active), s.demand)
		}
		s.mu.Unlock()
		s.Close()
	})
}

// The windows of a large tensor go through all its bytes, each once.
func TestPieces(t *testing.T) {
	for _, size := range []int{1024, pieceSize, pieceSize + 4, 3 * pieceSize, 10*pieceSize - 4, 97 * pieceSize} {
		id := Identity{Key: 12345, Size: size}
		seen := map[int]int{}
		pieces := (size + pieceSize - 1) / pieceSize
		for number := range pieces {
			off, n := piece(&id, number)
			seen[off] = n
		}
		sum := 0
		for off, n := range seen {
			if sum += n; off%pieceSize != 0 || off+n > size {
				t.Errorf("%d bytes: a piece from %d of %d", size, off, n)
			}
		}
		if sum != size {
			t.Errorf("%d bytes: pieces of %d", size, sum)
		}
	}
}

// Weights are sampled together for all connections to a peer; tensors that no candidate may code are not sampled.
func TestIdentity(t *testing.T) {
	state := tensor.Tensor{Key: 5, Base: 9, Role: tensor.State, DType: tensor.Float32, Size: 4096}
	id, ok := IdentityOf("far", policy.Flow{}, &state)
	if !ok || id.Key != 9 {
		t.Errorf("%+v, %v", id, ok)
	}
	for name, change := range map[string]func(*tensor.Tensor){
		"no key": func(x *tensor.Tensor) { x.Key = 0 }, "sparse": func(x *tensor.Tensor) { x.Keys = 3 }, "small": func(x *tensor.Tensor) { x.Size = 1000 },
		"integers": func(x *tensor.Tensor) { x.DType = tensor.Int64 }, "exact": func(x *tensor.Tensor) { x.Role = tensor.Exact },
		"a part of an element": func(x *tensor.Tensor) { x.Size = 4095 }, "state without a base": func(x *tensor.Tensor) { x.Role, x.Base = tensor.State, 0 },
		"sums that must be alike": func(x *tensor.Tensor) { x.Role = tensor.Aggregate },
	} {
		x := gradient(1, 4096)
		change(&x)
		if _, ok := IdentityOf("far", policy.Flow{}, &x); ok {
			t.Errorf("%s: sampled", name)
		}
	}
}

// However values are cut and interleave, a sampled value has the bytes of its piece, and an interrupted one is not
// taken.
func FuzzSee(f *testing.F) {
	f.Add(uint64(1), uint16(5000), uint16(700), false)
	f.Add(uint64(2), uint16(65000), uint16(65000), true)
	f.Add(uint64(3), uint16(4096), uint16(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, size, cut uint16, interrupt bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := &fakes{}
		s, h := start(t, all, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 1})
		c := NewConn(h, "far", nil)
		n := max(1024, int(size)*8) &^ 3 // up to two pieces
		want := map[string]bool{}
		for v := range 4 {
			var values [2][]byte
			var at [2]int
			for k := range values {
				values[k] = make([]byte, n)
				for i := 0; i+8 <= n; i += 8 {
					binary.LittleEndian.PutUint64(values[k][i:], r.Uint64())
				}
			}
			broken := interrupt && v == 2
			for at[0] < n || at[1] < n {
				k := r.IntN(2)
				if at[k] == n {
					k = 1 - k
				}
				m := min(n-at[k], 1+r.IntN(int(cut)+1))
				b := bytes.Clone(values[k][at[k] : at[k]+m])
				x := gradient(uint64(k)+1, n)
				if x.Off = at[k]; !(broken && x.Off > 0 && x.Off+m < n && k == 0) {
					x.Hold = r.IntN(n)
					c.See(policy.Flow{}, &x, b)
				} else {
					broken = false // one segment is not seen
				}
				clear(b) // the caller's
				at[k] += m
			}
			for k := range values {
				id, _ := IdentityOf("far", policy.Flow{}, &tensor.Tensor{Key: uint64(k) + 1, Role: tensor.Gradient, DType: tensor.Float32, Size: n})
				want[string(values[k])] = true // a whole window's
				for number := range 2 {
					off, length := piece(&id, number)
					want[string(values[k][off:off+length])] = true
				}
			}
		}
		c.Close()
		s.Close()
		for _, v := range all.values {
			if !want[string(v.data)] {
				t.Fatalf("a value of tensor %d has other bytes", v.key)
			}
			sum := 0
			for _, p := range v.runs {
				sum += p.Len
			}
			if sum != len(v.data) {
				t.Fatalf("runs of %d bytes for %d", sum, len(v.data))
			}
		}
	})
}

// A sender does not wait for somebody who reads the results.
func TestSendersDoNotWaitForResults(t *testing.T) {
	s := &Shadow{config: Config{Codecs: []string{"int8"}, Memory: 1 << 20, Share: 1}, clock: time.Now, active: map[*window]struct{}{}}
	id := Identity{Peer: "tokyo", Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 20}
	s.begins(&id)
	s.figures.Lock() // as while sums are added up
	read := make(chan *Results)
	go func() { read <- s.Results() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 100 {
			s.begins(&id)
			runtime.Gosched()
		}
	}()
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("a sender waits for a reader of the results")
	}
	s.figures.Unlock()
	<-read
}
