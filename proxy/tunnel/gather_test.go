package tunnel

import (
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// away is one way of the tests' paths; a round trip is 20 ms, so that messages gather for 2.5 ms.
const away = 10 * time.Millisecond

// gatherPair starts two sites and opens streams between them, whose far ends it returns as well. The PINGs have
// measured the round trip.
func gatherPair(t *testing.T, streams int, carriers int) (f *fabric, near, far []*Stream) {
	t.Helper()
	f = &fabric{delay: away}
	accepted := make(chan *Stream, streams)
	paris, tokyo := f.pair(t, func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }, func(c *Config) { c.Carriers = carriers })
	time.Sleep(time.Second) // until a session is up
	for range streams {
		near = append(near, paris.open(""))
		far = append(far, <-accepted)
	}
	time.Sleep(time.Second)
	for _, s := range []*site{paris, tokyo} {
		if g := s.list()[0].session().gather; g != 2*away/gatherShare {
			t.Fatalf("%s gathers for %v", s.cfg.Name, g)
		}
	}
	return f, near, far
}

// sends returns how many packets the dialing side has sent: what leaves at one moment is one.
func (f *fabric) sends() (n int) {
	f.each(func(c *fabricConn) {
		c.w.mu.Lock()
		n += c.w.sends
		c.w.mu.Unlock()
	})
	return n
}

// A message that nothing came before for some time leaves at once, and so does every question and every answer: no
// round trip is longer than the path's.
func TestLoneMessageLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, near, far := gatherPair(t, 1, 2)
		go io.Copy(far[0], far[0])
		b := make([]byte, 100)
		for range 20 {
			begin := time.Now()
			if _, err := near[0].Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(near[0], b); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took != 2*away {
				t.Fatalf("a round trip of %v took %v", 2*away, took)
			}
		}
	})
}

// Where many questions and answers cross at once, one waits for the packets of the others, but no round trip is longer
// than the path's by more than the time to gather at each end.
func TestRoundTripsThatCross(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const chains, rounds = 8, 50
		_, near, far := gatherPair(t, chains, 2)
		took := make(chan time.Duration, chains*rounds)
		for i, st := range near {
			go io.Copy(far[i], far[i])
			go func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				b := make([]byte, 100)
				for range rounds {
					time.Sleep(time.Duration(r.IntN(20e6)))
					begin := time.Now()
					st.Write(b)
					if _, err := io.ReadFull(st, b); err != nil {
						t.Error(err)
					}
					took <- time.Since(begin)
				}
			}()
		}
		var sum, longest time.Duration
		for range chains * rounds {
			d := <-took
			sum, longest = sum+d, max(longest, d)
		}
		mean := float64(sum) / float64(chains*rounds*2*away)
		if limit := 2*away + 2*2*away/gatherShare; longest > limit || mean > 1.1 {
			t.Errorf("round trips take %.3f of the path's, and up to %v where %v is the most", mean, longest, limit)
		}
		t.Logf("round trips take %.3f of the path's, %.3f at most", mean, float64(longest)/float64(2*away))
	})
}

// Users that write a few messages side by side and then wait for the others', as the ranks of a ring do with small
// sums, are not slower than the path: nothing comes while the last of the messages would gather.
func TestExchangesOfFewMessagesDoNotWait(t *testing.T) {
	const messages, apart, rounds, learning = 4, 50 * time.Microsecond, 100, 8
	bubble(t, func(t *testing.T) {
		_, near, far := gatherPair(t, 1, 2)
		var began time.Time
		exchange := func(st *Stream) {
			for i := range learning + rounds {
				if i == learning && st == near[0] {
					began = time.Now()
				}
				for range messages {
					st.Write(make([]byte, 48))
					time.Sleep(apart)
				}
				if _, err := io.ReadFull(st, make([]byte, messages*48)); err != nil {
					t.Error(err)
				}
			}
		}
		done := make(chan struct{})
		go func() { exchange(far[0]); close(done) }()
		exchange(near[0])
		round := time.Since(began) / rounds
		<-done
		if want := away + messages*apart; round > want {
			t.Errorf("an exchange takes %v, and %v without a proxy", round, want)
		}
	})
}

// Bursts of many messages side by side share packets however often they come, though nothing comes while the last ones
// gather.
func TestBurstsOfManyMessagesGather(t *testing.T) {
	const messages, apart, bursts, size = 12, 20 * time.Microsecond, 50, 100
	bubble(t, func(t *testing.T) {
		f, near, far := gatherPair(t, 4, 2)
		for _, st := range far {
			go io.Copy(io.Discard, st)
		}
		before := f.sends()
		for range bursts {
			for i := range messages {
				near[i%len(near)].Write(make([]byte, size))
				time.Sleep(apart)
			}
			time.Sleep(2 * away)
		}
		if n := float64(f.sends()-before) / bursts; n > 3 {
			t.Errorf("a burst of %d messages leaves in %.1f packets, want 3 at most", messages, n)
		}
	})
}

// Small messages of several streams that come one soon after the other leave in few packets, and none waits longer than
// the time to gather.
func TestSmallMessagesGather(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const messages, size = 400, 20
		f, near, far := gatherPair(t, 3, 2)
		r := rand.New(rand.NewPCG(1, 2))
		type note struct {
			stream int
			at     time.Time
		}
		written := make(chan note, messages)
		arrived := make([]chan time.Time, len(far))
		for i, st := range far {
			arrived[i] = make(chan time.Time, messages)
			go func() {
				b := make([]byte, size)
				for {
					if _, err := io.ReadFull(st, b); err != nil {
						return
					}
					arrived[i] <- time.Now()
				}
			}()
		}
		before, begin := f.sends(), time.Now()
		for range messages {
			i := r.IntN(len(near))
			written <- note{i, time.Now()}
			if _, err := near[i].Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
		}
		took := time.Since(begin)
		close(written)
		const gather = 2 * away / gatherShare
		longest := time.Duration(0)
		for w := range written {
			waited := (<-arrived[w.stream]).Sub(w.at) - away
			longest = max(longest, waited)
		}
		if longest <= 0 || longest > gather {
			t.Errorf("a message waited %v, and %v is the time to gather", longest, gather)
		}
		packets, full := f.sends()-before, messages*(size+headerLen)/fullPacket
		if limit := int(took/gather) + full + 5; packets > limit {
			t.Errorf("%d packets for %d messages within %v, want at most %d", packets, messages, took, limit)
		}
		t.Logf("%d messages within %v left in %d packets, and waited %v at most", messages, took, packets, longest)
	})
}

// Bytes that fill a packet leave at once, with the small ones that wait, whether one carrier or two are there.
func TestFullPacketLeavesAtOnce(t *testing.T) {
	for _, carriers := range []int{1, 2} {
		bubble(t, func(t *testing.T) {
			_, near, far := gatherPair(t, 2, carriers)
			near[0].Write([]byte("a"))
			time.Sleep(100 * time.Microsecond)
			near[0].Write([]byte("b"))
			begin := time.Now()
			near[1].Write(make([]byte, fullPacket))
			for i, n := range []int{2, fullPacket} {
				if _, err := io.ReadFull(far[i], make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); took != away {
				t.Errorf("%d carriers: arrived after %v, want %v", carriers, took, away)
			}
		})
	}
}

// Messages are taken to fill a packet when, with the headers that they will have, they do.
func TestFullPacketCountsItsHeaders(t *testing.T) {
	for _, short := range []bool{false, true} {
		s, c := attached(t, Config{Name: "a"})
		s.short = short
		s.mu.Lock()
		for s.next(c) { // the carrier's first records
			s.release(c)
		}
		for !s.fillPacket() {
			s.opened++
			st := &Stream{stream: s.newStream(streamID(s.opened-1, s.even)), session: s}
			s.mu.Unlock()
			if _, err := st.WriteMore(make([]byte, 20)); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.enqueue(st.stream, nil)
		}
		s.next(c)
		if n := len(c.out); n < fullPacket*85/100 || n > fullPacket*105/100 { // headers in streams that begin are shorter than shortData
			t.Errorf("short headers: %v; a packet is taken to be full at %d bytes, and %d fill it", short, n, fullPacket)
		}
		s.release(c)
		s.mu.Unlock()
	}
}

// What nobody waits for leaves with the next packet, and without one after a bounded time.
func TestWriteSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, near, far := gatherPair(t, 2, 2)
		arrives := func(st *Stream, n int) time.Duration {
			begin := time.Now()
			if _, err := io.ReadFull(st, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		before := f.sends()
		near[0].WriteSoon([]byte("with the next"))
		near[1].Write([]byte("the next"))
		if took := arrives(far[0], len("with the next")); took != away {
			t.Errorf("it came after %v", took)
		}
		arrives(far[1], len("the next"))
		if n := f.sends() - before; n != 1 {
			t.Errorf("%d packets", n)
		}
		time.Sleep(time.Second)
		near[0].WriteSoon([]byte("alone"))
		if took := arrives(far[0], len("alone")); took < away+maxAck-ackDelay || took > away+maxAck+2*ackDelay {
			t.Errorf("alone it came after %v", took)
		}
		near[0].WriteSoon([]byte("last"))
		near[0].CloseWrite()
		if took := arrives(far[0], len("last")); took != away {
			t.Errorf("before the end of the direction it came after %v", took)
		}
	})
}

// Few bytes are acknowledged within ackTime and the end of a direction and many bytes within ackDelay, so that the rate
// of a transfer is measured as before.
func TestAcknowledgementsWaitOnlyForFewBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, near, far := gatherPair(t, 2, 2)
		s := near[0].session
		acknowledged := func(st *Stream) time.Duration {
			begin := time.Now()
			for {
				s.mu.Lock()
				all := st.acked >= st.end
				s.mu.Unlock()
				if all {
					return time.Since(begin) - 2*away
				}
				time.Sleep(50 * time.Microsecond)
			}
		}
		for _, c := range []struct {
			bytes            int
			end              bool
			minimum, maximum time.Duration
		}{{100, false, maxAck - ackDelay, maxAck + 2*ackDelay}, {2 * ackFew, false, 0, 2 * ackDelay}, {100, true, 0, 2 * ackDelay}} {
			time.Sleep(time.Second)
			near[0].Write(make([]byte, c.bytes))
			if c.end {
				near[0].CloseWrite()
			}
			go io.CopyN(io.Discard, far[0], int64(c.bytes))
			if took := acknowledged(near[0]); took < c.minimum || took > c.maximum {
				t.Errorf("%d bytes, end %v: acknowledged after %v and the round trip, want %v to %v", c.bytes, c.end, took, c.minimum, c.maximum)
			}
		}
	})
}

// Paths too short for the runtime's timers gather nothing.
func TestGatherTime(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{
		0: 0, 100 * time.Microsecond: 0, 3 * time.Millisecond: 0, 4 * time.Millisecond: 500 * time.Microsecond,
		10 * time.Millisecond: 1250 * time.Microsecond, time.Second: maxGather,
	} {
		if got := gatherTime(rtt); got != want {
			t.Errorf("round trip %v: %v, want %v", rtt, got, want)
		}
	}
}
