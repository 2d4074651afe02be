package tunnel

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// attached returns a session with one carrier whose goroutines do not run, so that a test names the records that come
// and looks at the records that would leave.
func attached(t testing.TB, cfg Config) (*session, *carrier) {
	t.Helper()
	cfg.Memory = 1 << 30
	s := newPeer(&newEndpoint(cfg).home, Peer{Name: "puppet"}).sess
	if err := s.establish(&hello{mine: newIncarnation(), maxBody: maxBody, streams: 4, window: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	c := &carrier{link: deaf(nil), born: time.Now()}
	if !s.attach(c) {
		t.Fatal("not attached")
	}
	return s, c
}

// own opens a stream of this side whose offsets begin at base, writes so many bytes, and lets them leave.
func own(t testing.TB, s *session, c *carrier, base uint64, n int, fin bool) *Stream {
	t.Helper()
	s.mu.Lock()
	s.opened++
	st := &Stream{stream: s.newStream(streamID(s.opened-1, s.even)), session: s}
	st.end, st.left, st.acked, st.limit = base, base, base, base+64<<10
	s.mu.Unlock()
	for n > 0 { // pieces of 1 KiB
		m := min(n, 1<<10)
		if _, err := st.Write(make([]byte, m)); err != nil {
			t.Fatal(err)
		}
		if n -= m; n == 0 && fin {
			st.CloseWrite()
		}
		s.mu.Lock()
		for s.next(c) {
			s.release(c)
		}
		s.mu.Unlock()
	}
	return st
}

// The largest offsets are treated as the small ones are.
var bases = []uint64{0, 1<<32 - 1000, 1<<53 + 1, maxOffset - 64<<10}

func TestAcknowledge(t *testing.T) {
	for _, base := range bases {
		for _, c := range []struct {
			name        string
			acked       []int64 // after base, in turn
			fin         bool
			kept        int // bytes
			want        string
			flightAfter int
		}{
			{name: "nothing", acked: []int64{0}, kept: 5000, flightAfter: 5000},
			{name: "all", acked: []int64{5000}},
			{name: "all, not the end", acked: []int64{5000}, fin: true, kept: 904, flightAfter: 904},
			{name: "all and the end", acked: []int64{5001}, fin: true},
			{name: "a record", acked: []int64{1024}, kept: 3976, flightAfter: 3976},
			{name: "within a record", acked: []int64{1023}, kept: 5000, flightAfter: 5000},
			{name: "within a later one", acked: []int64{2050}, kept: 2952, flightAfter: 2952},
			{name: "again", acked: []int64{2048, 2048}, kept: 2952, flightAfter: 2952},
			{name: "less than before", acked: []int64{3072, 1024, 0}, kept: 1928, flightAfter: 1928},
			{name: "one too many", acked: []int64{5001}, want: "of which 5000 have left"},
			{name: "one too many with the end", acked: []int64{5002}, fin: true, want: "of which 5001 have left"},
			{name: "everything there is", acked: []int64{math.MaxInt64}, want: "have left"},
		} {
			s, carrier := attached(t, Config{Name: "tokyo"})
			st := own(t, s, carrier, base, 5000, c.fin)
			var err error
			for _, n := range c.acked {
				s.mu.Lock()
				err = s.windowed(st.id, min(base+uint64(n), maxOffset-1), 0)
				s.mu.Unlock()
			}
			kept := 0
			for ch := st.head; ch != nil; ch = ch.next {
				kept += ch.n
			}
			if c.want != "" {
				if base == 0 && (err == nil || !strings.Contains(err.Error(), c.want)) || !errors.Is(err, errBroken) {
					t.Errorf("%s from %d: %v, nothing of %q", c.name, base, err, c.want)
				}
				continue
			}
			if largest := base + uint64(slices.Max(c.acked)); st.acked != largest {
				t.Errorf("%s from %d: %d is acknowledged, not %d", c.name, base, st.acked, largest)
			}
			if err != nil || kept != c.kept || st.flight != c.flightAfter || st.unsent != 0 {
				t.Errorf("%s from %d: %d bytes kept, not %d; %d under way, %d unsent; %v", c.name, base, kept, c.kept, st.flight, st.unsent, err)
			}
		}
	}
}

// Credit only grows, whatever order WINDOWs come in, never wraps, and is used to the last byte and no further.
func TestCredit(t *testing.T) {
	for _, base := range bases {
		s, c := attached(t, Config{Name: "tokyo"})
		st := own(t, s, c, base, 1, false)
		first := st.limit
		for _, step := range []struct {
			limit uint64
			want  uint64
		}{
			{first - 1, first}, {0, first}, {first, first}, {first + 1, min(first+1, maxOffset)}, {first, min(first+1, maxOffset)},
			{math.MaxUint64, maxOffset}, {maxOffset - 1, maxOffset},
		} {
			s.mu.Lock()
			err := s.windowed(st.id, base, step.limit)
			s.mu.Unlock()
			if err != nil || st.limit != step.want {
				t.Errorf("from %d: credit %d, not %d, after %d; %v", base, st.limit, step.want, step.limit, err)
			}
		}
	}
	s, c := attached(t, Config{Name: "tokyo"})
	st := own(t, s, c, maxOffset-64<<10, 64<<10-1, false)
	for _, want := range []int{1, 0} {
		s.mu.Lock()
		if got := int(st.limit - st.end); got != want {
			t.Errorf("%d bytes of credit are left, not %d", got, want)
		}
		s.mu.Unlock()
		if want > 0 {
			st.Write([]byte{1})
		}
	}
}

// The limit on streams only grows too, and is held within the range of the ids.
func TestStreamCredit(t *testing.T) {
	s, _ := attached(t, Config{Name: "tokyo"})
	for _, step := range []struct{ limit, want uint64 }{{3, 4}, {5, 5}, {0, 5}, {math.MaxUint64, maxStream / 2}, {6, maxStream / 2}} {
		s.mu.Lock()
		if err := s.windowed(0, 0, step.limit); err != nil || s.openLimit != step.want {
			t.Errorf("%d streams after %d, not %d; %v", s.openLimit, step.limit, step.want, err)
		}
		s.mu.Unlock()
	}
	if id := streamID(maxStream/2-1, true); id > maxStream {
		t.Errorf("stream %d does not fit", id)
	}
}

// DATA and RESET against credit and end, at small offsets and at the last ones; WINDOW says how far the bytes have come
// without a gap.
func TestAdmit(t *testing.T) {
	const credit = 256 << 10
	type step struct {
		off, n int64
		fin    bool
		reset  bool // RESET at off
	}
	for _, base := range bases {
		if base > maxOffset-2*credit {
			base = maxOffset - 2*credit
		}
		for _, c := range []struct {
			name  string
			steps []step
			here  int64 // position that is acknowledged, if nothing is wrong
			want  string
		}{
			{"in order", []step{{off: 0, n: 10}, {off: 10, n: 10}}, 20, ""},
			{"to the last byte of credit", []step{{off: credit - 10, n: 10}}, 0, ""},
			{"one byte more", []step{{off: credit - 10, n: 11}}, 0, "credit ends"},
			{"all beyond", []step{{off: credit, n: 1}}, 0, "credit ends"},
			{"FIN takes no credit", []step{{off: credit, fin: true}}, 0, ""},
			{"FIN beyond credit", []step{{off: credit + 1, fin: true}}, 0, "credit ends"},
			{"gap", []step{{off: 10, n: 10}}, 0, ""},
			{"gap closed", []step{{off: 10, n: 10}, {off: 0, n: 10}}, 20, ""},
			{"gaps closed backwards", []step{{off: 20, n: 10}, {off: 10, n: 10}, {off: 0, n: 10}}, 30, ""},
			{"the same again", []step{{off: 0, n: 10}, {off: 0, n: 10}}, 10, ""},
			{"the same again beyond a gap", []step{{off: 10, n: 10}, {off: 10, n: 10}}, 0, ""},
			{"a part again", []step{{off: 0, n: 10}, {off: 2, n: 3}}, 10, ""}, // no newer byte
			{"overlap", []step{{off: 0, n: 10}, {off: 9, n: 2}}, 0, "overlaps"},
			{"overlap from below", []step{{off: 10, n: 10}, {off: 0, n: 11}}, 0, "overlaps"},
			{"overlap beyond a gap", []step{{off: 10, n: 10}, {off: 15, n: 10}, {off: 0, n: 10}}, 0, "overlaps"},
			{"overlap of what is beyond a gap", []step{{off: 20, n: 10}, {off: 15, n: 6}}, 0, "overlaps other DATA"},
			{"FIN with data", []step{{off: 0, n: 10, fin: true}}, 11, ""},
			{"FIN alone", []step{{off: 0, n: 10}, {off: 10, fin: true}}, 11, ""},
			{"FIN first", []step{{off: 10, fin: true}, {off: 0, n: 10}}, 11, ""},
			{"FIN again", []step{{off: 0, n: 10, fin: true}, {off: 10, fin: true}, {off: 0, n: 10, fin: true}}, 11, ""},
			{"after FIN", []step{{off: 0, n: 10, fin: true}, {off: 10, n: 1}}, 0, "which ended at"},
			{"FIN before data", []step{{off: 0, n: 10}, {off: 9, fin: true}}, 0, "after DATA"},
			{"another FIN", []step{{off: 20, fin: true}, {off: 19, fin: true}}, 0, "and at"},
			{"RESET at the end of data", []step{{off: 0, n: 10}, {off: 10, reset: true}}, 10, ""},
			{"RESET with bytes under way", []step{{off: 20, reset: true}, {off: 0, n: 20}}, 20, ""},
			{"RESET at the end of credit", []step{{off: credit, reset: true}}, 0, ""},
			{"RESET beyond credit", []step{{off: credit + 1, reset: true}}, 0, "beyond its credit"},
			{"RESET before data", []step{{off: 10, n: 10}, {off: 19, reset: true}}, 0, "after DATA"},
			{"RESET not at FIN", []step{{off: 20, fin: true}, {off: 21, reset: true}}, 0, "after FIN"},
			{"data after RESET", []step{{off: 10, reset: true}, {off: 0, n: 11}}, 0, "which ended at"},
		} {
			s, _ := attached(t, Config{Name: "tokyo", Streams: 4})
			s.mu.Lock()
			st := s.newStream(streamID(0, !s.even))
			st.pos, st.have, st.far, st.granted = base, base, base, base+credit
			var err error
			for _, x := range c.steps {
				if err != nil {
					t.Errorf("%s from %d: %v before the last step", c.name, base, err)
				}
				h := header{kind: kindData, stream: st.id, value: base + uint64(x.off), length: int(x.n)}
				if x.fin {
					h.flags = flagFin
				}
				if x.reset {
					err = s.reset(st.id, h.value, CodeApp)
					continue
				}
				var to *stream
				if to, err = s.incoming(h); to != nil {
					err = s.takeSmall(to, h, make([]byte, x.n))
				}
			}
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, errBroken) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s from %d: %v, not %q", c.name, base, err, c.want)
			}
			if got := int64(st.received() - base); c.want == "" && got != c.here {
				t.Errorf("%s from %d: position %d is acknowledged, not %d", c.name, base, got, c.here)
			}
			s.mu.Unlock()
		}
	}
}

// TestWindowsRide: a WINDOW that could wait leaves with data that leave anyway, but no sooner after the last one than
// if it had waited.
func TestWindowsRide(t *testing.T) {
	s, c := attached(t, Config{Name: "a"})
	st := own(t, s, c, 0, 0, false)
	windows := func() (n int) {
		if _, err := st.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for s.next(c) {
			for b := c.out; len(b) > 0; {
				h, err := parseHeader((*[headerLen]byte)(b), maxBody)
				if err != nil {
					t.Fatal(err)
				}
				if h.kind == kindWindow && h.stream == st.id {
					n++
				}
				b = b[headerLen+h.length:]
			}
			s.release(c)
		}
		return n
	}
	windows() // the carrier's first records
	lazily := func(told time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.toldAt = told
		s.lazyAlarm.isSet = true // no timer: the test looks before it could fire, or much later
		s.update(st.stream, false)
	}
	lazily(time.Time{})
	if n := windows(); n != 1 || st.update != updateNone {
		t.Errorf("%d WINDOWs leave with data, want 1; the stream's is %v", n, st.update)
	}
	lazily(time.Now().Add(time.Hour))
	if n := windows(); n != 0 || st.update != updateLazy || s.lazy.n != 1 {
		t.Errorf("%d WINDOWs leave right after another one; the stream's is %v, %d wait", n, st.update, s.lazy.n)
	}
	st.toldAt = time.Time{}
	if n := windows(); n != 1 || s.lazy.n != 0 {
		t.Errorf("%d WINDOWs leave later, %d wait", n, s.lazy.n)
	}
	if n := windows(); n != 0 {
		t.Errorf("%d WINDOWs leave without anything new to tell", n)
	}
}
