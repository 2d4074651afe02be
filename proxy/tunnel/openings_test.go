package tunnel

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// A peer that opens streams and resets them at once has this side dial no faster than its allowance, and never more at
// a time than maxDeciding; the peer's next stream in order is still served, and the other peer feels nothing.
func TestRapidResetIsHeldToARate(t *testing.T) {
	for name, accept := range map[string]func(in *Incoming){
		"refused":        func(in *Incoming) { in.Refuse(CodeApp, "denied") },
		"never answered": func(in *Incoming) { <-in.Done() },
		"blind": func(in *Incoming) {
			time.Sleep(time.Second) // as one that dials a host that does not answer
			in.Refuse(CodeApp, "unreachable")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var calls, running, largest atomic.Int64
				s := besiege(t, func(in *Incoming) {
					calls.Add(1)
					if n := running.Add(1); n > largest.Load() {
						largest.Store(n)
					}
					accept(in)
					running.Add(-1)
				}, nil)
				s.drain()
				const n, seconds = 12_000, 4
				begin := time.Now()
				for second := range uint64(seconds) {
					first := second * n / seconds
					s.flood(n/seconds, func(b []byte, i uint64) []byte {
						return record(b, header{kind: kindData, stream: s.mallory.id(first + i)}, 0, 0)
					})
					time.Sleep(50 * time.Millisecond) // an opening that is withdrawn before its turn is shown to nobody
					s.flood(n/seconds, func(b []byte, i uint64) []byte {
						return record(b, header{kind: kindReset, stream: s.mallory.id(first + i), value: 2}, 0, 0, 0, 1)
					})
					time.Sleep(time.Second)
					echoes(t, s.honest)
				}
				synctest.Wait()
				s.stands()
				if started, limit := calls.Load(), int64(openingBurst+openingRate*time.Since(begin).Seconds()+1); started > limit || started < maxDeciding/2 {
					t.Errorf("%d of %d openings were shown to Accept, %d to %d should be", started, n, maxDeciding/2, limit)
				}
				if largest.Load() > maxDeciding {
					t.Errorf("%d openings were being answered at once, at most %d should be", largest.Load(), maxDeciding)
				}
				s.lift()
			})
		})
	}
}

// echoes checks that a stream answers.
func echoes(t *testing.T, st *Stream) {
	t.Helper()
	begin := time.Now()
	if _, err := st.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 10*time.Millisecond { // of the fabric's clock, on which computing takes no time
		t.Errorf("the honest peer's answer took %v", took)
	}
}

// Openings whose turn comes late are answered all the same, in their order, and hold no memory afterwards.
func TestOpeningsWaitTheirTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = openingBurst + 2*openingRate
		f := &fabric{delay: time.Millisecond}
		var last atomic.Int64
		paris, tokyo := f.pair(t, func(_ string, opening []byte, in *Incoming) {
			var i int64
			fmt.Sscan(string(opening), &i)
			last.Store(max(last.Load(), i))
			in.Refuse(CodeApp, "no")
		}, nil)
		up(paris)
		begin, done := time.Now(), make(chan error, n)
		for i := range n {
			go func() {
				_, err := paris.Open(t.Context(), "tokyo", fmt.Append(nil, i))
				done <- err
			}()
		}
		for range n {
			if _, ok := (<-done).(*RefusedError); !ok {
				t.Error("an opening was not answered by Accept")
			}
		}
		if took := time.Since(begin); took < 1900*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("%d openings took %v, want about 2 s", n, took)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if used := tokyo.mem.used.Load(); used != 0 {
			t.Errorf("%d bytes are held for openings that were answered", used)
		}
	})
}

// Streams that end in order are not held to a rate, however many there are.
func TestShortStreamsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		paris, _ := f.pair(t, echo, nil)
		up(paris)
		begin := time.Now()
		const rounds, at = 80, 50
		for range rounds {
			ended := make(chan error, at)
			for range at {
				go func() {
					st, err := paris.Open(t.Context(), "tokyo", []byte("echo"))
					if err == nil {
						_, err = st.Write([]byte("ping"))
						err = cmp.Or(err, st.CloseWrite())
						_, e := io.ReadAll(st)
						err = cmp.Or(err, e, st.Close())
					}
					ended <- err
				}()
			}
			for range at {
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%d streams took %v", rounds*at, took)
		}
	})
}

// Streams that were accepted and are then reset, by either side, are held to the rate: each has had this side dial a
// server.
func TestAcceptedStreamsThatAreReset(t *testing.T) {
	for by, accept := range map[string]func(in *Incoming){
		"opener": func(in *Incoming) { io.Copy(io.Discard, in.Accept()) },
		"server": func(in *Incoming) { in.Accept().Reset(CodeApp) },
	} {
		t.Run(by, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &fabric{delay: time.Millisecond}
				paris, _ := f.pair(t, func(_ string, _ []byte, in *Incoming) { accept(in) }, nil)
				up(paris)
				begin := time.Now()
				const rounds, at = 62, 50
				for range rounds {
					var reset sync.WaitGroup
					for range at {
						reset.Go(func() {
							st, err := paris.Open(t.Context(), "tokyo", []byte("x"))
							if err != nil { // the reset has come before the answer was read
								return
							}
							if by == "server" {
								io.Copy(io.Discard, st)
							}
							st.Reset(CodeApp)
						})
					}
					reset.Wait()
				}
				// Those that the burst does not have come at the rate.
				if took, minimum := time.Since(begin).Seconds(), float64(rounds*at-openingBurst)/openingRate; took < minimum*0.95 {
					t.Errorf("%d streams that were reset took %.2f s, want %.2f s at least", rounds*at, took, minimum)
				}
			})
		})
	}
}

// Of a window full of small pieces beyond a gap, a new piece looks at the few that bisection needs: all others may be
// missing.
func TestPieceBeyondGapLooksAtFew(t *testing.T) {
	const n = maxWindow / tiny / 2
	e := &Endpoint{home: home{mem: buffers{limit: 1 << 40}}}
	e.mem.peers.Store(1)
	p := newPeer(&e.home, Peer{Name: "far"})
	piece := func(i int) *chunk { return &chunk{off: uint64(1 + tiny*i), n: tiny, buf: make([]byte, headerLen)} }
	for _, at := range []int{1, n/3 | 1, 2*n - 1} { // between pieces with even numbers, and behind them
		all := make([]*chunk, n)
		for i := range all {
			all[i] = piece(2 * i)
		}
		looked := map[*chunk]bool{}
		place, _ := slices.BinarySearchFunc(all, piece(at).off, func(c *chunk, off uint64) int {
			looked[c] = true
			return cmp.Compare(c.off, off)
		})
		if place < n {
			looked[all[place]] = true
		}
		if len(looked) > bits.Len(n)+1 {
			t.Fatalf("bisection looks at %d of %d", len(looked), n)
		}
		for i, c := range all {
			if !looked[c] {
				all[i] = nil
			}
		}
		st := new(stream)
		st.early = all
		if err := p.sess.takeEarly(st, piece(at)); err != nil || len(st.early) != n+1 || st.early[place].off != piece(at).off {
			t.Errorf("piece %d: %v, %d pieces", at, err, len(st.early))
		}
	}
}

// A window of 1 KiB records beyond a gap. While places were found by walking the list, ascending records took 199 µs
// each, on two cores; by bisection they take 0.6 µs.
func BenchmarkBeyondGap(b *testing.B) {
	ranktest.Unwatched(b)
	for name, at := range map[string]func(i, n int) int{
		"ascending":   func(i, _ int) int { return i },
		"descending":  func(i, n int) int { return n - 1 - i },
		"alternating": func(i, n int) int { return i/2 + i%2*n/2 },
	} {
		b.Run(name, func(b *testing.B) {
			const n = maxWindow / tiny
			e := &Endpoint{home: home{mem: buffers{limit: 1 << 40}}}
			e.mem.peers.Store(1)
			p := newPeer(&e.home, Peer{Name: "far"})
			for range b.N {
				st := new(stream)
				for i := range n {
					ch := &chunk{off: uint64(1 + tiny*at(i, n)), n: tiny, buf: make([]byte, headerLen)}
					if err := p.sess.takeEarly(st, ch); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
		})
	}
}
