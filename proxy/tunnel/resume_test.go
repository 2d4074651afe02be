package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// pour writes want to w and reads it from r, and checks that it is the same.
func pour(t *testing.T, w, r *Stream, want []byte) {
	t.Helper()
	wrote := make(chan error, 1)
	go func() {
		_, err := w.Write(want)
		wrote <- errors.Join(err, w.CloseWrite())
	}()
	var got bytes.Buffer
	_, err := r.WriteTo(&got)
	if err := errors.Join(err, <-wrote); err != nil {
		t.Error(err)
	}
	same(t, "what was written", got.Bytes(), want)
}

// A carrier that is killed is a pause: its chunks leave again, once.
func TestCarrierKilled(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 20 * time.Millisecond, rate: 10 << 20}
		near, far, paris, tokyo := meet(t, nil, f)
		go func() {
			for range 5 {
				time.Sleep(300 * time.Millisecond)
				f.each((*fabricConn).kill)
			}
		}()
		want := noise(1, 24<<20)
		pour(t, far, near, want)
		near.Close()
		time.Sleep(time.Second)
		a, b := paris.Stats()[0], tokyo.Stats()[0]
		if b.Replayed == 0 || b.Outages == 0 || b.Sessions != 1 || a.Sessions != 1 {
			t.Errorf("here %+v\nthere %+v", a, b)
		}
		if b.Sent != a.Received || a.Received < uint64(len(want)) || a.Received > uint64(len(want))+100 {
			t.Errorf("%d sent, %d received of %d", b.Sent, a.Received, len(want))
		}
		if d := f.setDown(false); d < 2+5 {
			t.Errorf("%d carriers were dialed in all, though some were killed 5 times", d)
		}
	})
}

// A carrier that swallows its bytes is found dead after 15 s; the streams go on over the others at
// once, but for the swallowed bytes.
func TestBlackHole(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 20 * time.Millisecond, rate: 10 << 20}
		var lost []error
		near, far, _, tokyo := meet(t, func(c *Config) {
			if c.Name == "tokyo" {
				c.Events.CarrierDown = func(_ string, err error) { lost = append(lost, err) }
			}
		}, f)
		var swallowed time.Time
		go func() {
			time.Sleep(300 * time.Millisecond)
			swallowed = time.Now()
			f.each((*fabricConn).swallow)
		}()
		pour(t, far, near, noise(2, 16<<20))
		if d := time.Since(swallowed); d < deadAfter-pingEvery || d > deadAfter+5*time.Second {
			t.Errorf("the transfer was over %v after its carriers fell silent", d)
		}
		near.Close()
		if tokyo.Stats()[0].Replayed == 0 {
			t.Error("nothing left again")
		}
		if len(lost) != 2 {
			t.Errorf("lost carriers: %v", lost)
		}
	})
}

// Whatever carriers die when, each stream delivers the bytes that were written to it.
func TestRandomKills(t *testing.T) {
	outages, replayed := 0, uint64(0)
	for seed := range uint64(8) {
		bubbles(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			f := &fabric{delay: time.Duration(1+r.IntN(40)) * time.Millisecond, rate: 4 << 20}
			carriers := 1 + r.IntN(4)
			paris, tokyo := f.pair(t, echo, func(c *Config) { c.Carriers = carriers })
			if seed%2 == 1 { // both dial
				tokyo.SetPeers([]Peer{{Name: "paris", ID: "spiffe://lab/paris", Dial: "paris:1"}})
			}
			up(paris)
			stop := make(chan bool)
			var chaos sync.WaitGroup
			chaos.Go(func() {
				r := rand.New(rand.NewPCG(seed, 1))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(r.IntN(250))*time.Millisecond + 6*f.delay): // time for a handshake, now and then
					}
					hole := r.IntN(30) == 0
					which := r.IntN(carriers + 1) // the last: all
					i := 0
					f.each(func(c *fabricConn) {
						if i == which || which == carriers {
							if hole {
								c.swallow()
							} else {
								c.kill()
							}
						}
						i++
					})
				}
			})
			var streams sync.WaitGroup
			for i := range 20 {
				n := 1 + r.IntN(1<<(5+i%17))
				streams.Go(func() {
					s := paris.open("echo")
					defer s.Close()
					pour(t, s, s, noise(byte(i), n))
				})
			}
			streams.Wait()
			close(stop)
			chaos.Wait()
			time.Sleep(time.Minute)
			a, b := paris.Stats()[0], tokyo.Stats()[0]
			if a.Streams+b.Streams != 0 || a.Sessions != 1 || b.Sessions != 1 {
				t.Errorf("seed %d: streams are left, or a session was lost:\n%+v\n%+v", seed, a, b)
			}
			if a.Carriers != carriers || b.Carriers != carriers {
				t.Errorf("seed %d: %d and %d carriers of %d a minute later", seed, a.Carriers, b.Carriers, carriers)
			}
			for _, s := range []*site{paris, tokyo} {
				if n := s.mem.used.Load(); n != 0 {
					t.Errorf("seed %d: %s holds %d bytes in buffers though no stream is open", seed, s.cfg.Name, n)
				}
			}
			outages += int(a.Outages)
			replayed += a.Replayed
			t.Logf("seed %d: %d carriers, %d outages, %d bytes again", seed, f.setDown(false), a.Outages, a.Replayed)
		})
	}
	if outages == 0 || replayed == 0 {
		t.Errorf("%d outages, and %d bytes left again: nothing was to be resumed", outages, replayed)
	}
}

// While no carrier is there, streams and openings wait; after the resume time they are lost.
func TestResumeTime(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		var reasons []error
		near, far, paris, tokyo := meet(t, func(c *Config) {
			c.Resume = 10 * time.Minute
			if c.Name == "paris" {
				c.Events.SessionLost = func(_ string, err error) { reasons = append(reasons, err) }
			}
		}, f)
		f.setDown(true)
		f.each((*fabricConn).kill)
		time.Sleep(9 * time.Minute)
		near.Write([]byte("late"))
		f.setDown(false)
		b := make([]byte, 4)
		if _, err := io.ReadFull(far, b); err != nil || string(b) != "late" {
			t.Fatalf("after 9 minutes: %q, %v", b, err)
		}

		f.setDown(true)
		f.each((*fabricConn).kill)
		opened := make(chan error, 1)
		go func() {
			_, err := paris.Open(t.Context(), "tokyo", nil)
			opened <- err
		}()
		time.Sleep(5 * time.Minute) // no carrier is left, and nothing leaves
		notSent := make(chan error, 1)
		go func() {
			_, err := paris.Open(t.Context(), "tokyo", nil)
			notSent <- err
		}()
		time.Sleep(6 * time.Minute)
		if err := <-notSent; !errors.Is(err, ErrNotSent) {
			t.Errorf("Open in the outage: %v, want that nothing was sent", err)
		}
		for name, s := range map[string]*Stream{"near": near, "far": far} {
			if _, err := s.Read(b); !errors.Is(err, ErrSessionLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := <-opened; !errors.Is(err, ErrSessionLost) {
			t.Errorf("Open that waited: %v", err)
		}
		if _, err := paris.Open(t.Context(), "tokyo", nil); !errors.Is(err, ErrPeerDown) {
			t.Errorf("Open without a session: %v", err)
		}
		if len(reasons) != 1 {
			t.Errorf("lost sessions: %v", reasons)
		}
		f.setDown(false)
		time.Sleep(5 * time.Second)
		if s, err := paris.Open(t.Context(), "tokyo", nil); err != nil {
			t.Errorf("in the next session: %v", err)
		} else {
			s.Reset(CodeApp)
		}
		if n := tokyo.Stats()[0].Sessions; n != 2 {
			t.Errorf("%d sessions", n)
		}
	})
}

// A peer that has restarted knows nothing of the streams: they are lost, at once and not after the resume
// time. Both the side that dials and the one that is dialed may restart.
func TestRestart(t *testing.T) {
	for _, name := range []string{"tokyo", "paris"} {
		bubbles(t, func(t *testing.T) {
			f := &fabric{delay: time.Millisecond}
			near, far, paris, tokyo := meet(t, nil, f)
			restarts, stays, other := tokyo, paris, near
			if name == "paris" {
				restarts, stays, other = paris, tokyo, far
			}
			f.setDown(true)
			f.each((*fabricConn).kill) // so that its Close reaches nobody, like that of kill -9
			restarts.Close()
			time.Sleep(time.Minute)
			if other.Err() != nil {
				t.Fatalf("%s: lost before the peer has come back: %v", name, other.Err())
			}
			f.setDown(false)
			restarts.start()
			time.Sleep(5 * time.Second)
			if _, err := other.Read(make([]byte, 1)); !errors.Is(err, ErrSessionLost) {
				t.Errorf("%s: %v", name, err)
			}
			s, err := stays.Open(t.Context(), stays.cfg.Peers[0].Name, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.Reset(CodeApp)
			if st := stays.Stats()[0]; st.Carriers != 2 || st.Sessions != 2 {
				t.Errorf("%s: %+v", name, st)
			}
		})
	}
}

// A site that never was up is no reason to wait.
func TestPeerDown(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{}
		f.setDown(true)
		paris, _ := f.pair(t, nil, nil)
		time.Sleep(time.Minute)
		began := time.Now()
		if _, err := paris.Open(t.Context(), "tokyo", nil); !errors.Is(err, ErrPeerDown) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		f.setDown(false)
		time.Sleep(2*backoffTo + time.Second)
		if n := paris.Stats()[0].Carriers; n != 2 {
			t.Errorf("%d carriers", n)
		}
	})
}

// Await waits for the first session, and for the next one after a session is lost, and no longer than it may.
func TestAwait(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{}
		f.setDown(true)
		paris, _ := f.pair(t, nil, nil)
		await := func(within time.Duration) (error, time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			began := time.Now()
			return paris.Await(ctx, "tokyo"), time.Since(began)
		}
		if err, took := await(time.Minute); !errors.Is(err, ErrNeverUp) || !errors.Is(err, ErrPeerDown) || took != time.Minute {
			t.Errorf("before the first session: %v after %v", err, took)
		}
		f.setDown(false)
		if err, took := await(time.Hour); err != nil || took > 2*backoffTo {
			t.Errorf("the first session: %v after %v", err, took)
		}
		if err, took := await(0); err != nil || took != 0 {
			t.Errorf("with a session: %v after %v", err, took)
		}
		f.setDown(true)
		f.each((*fabricConn).kill)
		time.Sleep(11 * time.Minute) // the resume time is over
		if err, took := await(time.Second); !errors.Is(err, ErrPeerDown) || errors.Is(err, ErrNeverUp) || took != time.Second {
			t.Errorf("after a session: %v after %v", err, took)
		}
		time.AfterFunc(time.Second, func() { paris.Close() })
		if err, took := await(time.Hour); !errors.Is(err, ErrClosed) || took != time.Second {
			t.Errorf("as the Endpoint closes: %v after %v", err, took)
		}
		if err := paris.Await(t.Context(), "berlin"); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("a peer that is not configured: %v", err)
		}
	})
}

// After an hour a carrier makes room for a new one: nothing stops and nothing is sent twice.
func TestRotation(t *testing.T) {
	for _, carriers := range []int{1, 2} {
		bubbles(t, func(t *testing.T) {
			f := &fabric{delay: 20 * time.Millisecond, rate: 1 << 20}
			var lost []error
			near, far, paris, tokyo := meet(t, func(c *Config) {
				c.Carriers = carriers
				c.Events.CarrierDown = func(_ string, err error) { lost = append(lost, err) }
			}, f)
			time.Sleep(rotateAfter - 3*time.Second)
			pour(t, near, far, noise(1, 8<<20))
			pour(t, far, near, noise(2, 1<<20))
			time.Sleep(10 * time.Second)
			a, b := paris.Stats()[0], tokyo.Stats()[0]
			if d := f.setDown(false); d != 2*carriers || a.Carriers != carriers || b.Carriers != carriers {
				t.Errorf("%d carriers were dialed, %d and %d are up", d, a.Carriers, b.Carriers)
			}
			if a.Replayed+b.Replayed+a.Outages+b.Outages != 0 || len(lost) != 0 {
				t.Errorf("lost carriers %v\nhere %+v\nthere %+v", lost, a, b)
			}
		})
	}
}

// A carrier whose key has sealed and opened as many records, or bytes, as it should gives way to another one, long
// before the limits of its cipher, and no byte is sent again.
func TestWornKeysAreReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		carrier string
		wear    func(l Link)
	}{
		"tls, records":  {CarrierTLS, func(l Link) { l.(*tlsLink).writes.Store(rotateRecords) }},
		"tls, bytes":    {CarrierTLS, func(l Link) { l.(*tlsLink).written.Store(keyBytes) }},
		"dtls, records": {CarrierDTLS, func(l Link) { l.(*dtlsLink).packets.Store(rotateRecords) }},
		"dtls, forged": {CarrierDTLS, func(l Link) {
			o := l.(*dtlsLink).open
			o.mu.Lock()
			o.forged = rotateForged
			o.mu.Unlock()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paris, tokyo := pairOver(t, c.carrier, echo, nil)
			st, err := paris.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			s := paris.list()[0].session()
			old := map[*carrier]bool{}
			s.mu.Lock()
			for _, c := range s.carriers {
				old[c] = true
			}
			s.mu.Unlock()
			for l := range old {
				c.wear(l.link)
			}
			replaced := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, c := range s.carriers {
					if old[c] {
						return false
					}
				}
				return len(s.carriers) == len(old)
			}
			data, got := noise(1, 64<<10), make([]byte, 64<<10)
			for began := time.Now(); !replaced(); {
				if time.Since(began) > time.Minute {
					t.Fatal("worn carriers are not replaced")
				}
				go st.Write(data)
				if _, err := io.ReadFull(st, got); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("other bytes came back: %v", err)
				}
			}
			if a, b := paris.Stats()[0], tokyo.Stats()[0]; a.Replayed+b.Replayed != 0 {
				t.Errorf("bytes were sent again:\nhere %+v\nthere %+v", a, b)
			}
		})
	}
}

// Where both sides dial, they end up with as many carriers as one would bring.
func TestBothDial(t *testing.T) {
	for range 10 {
		bubbles(t, func(t *testing.T) {
			f := &fabric{delay: 5 * time.Millisecond}
			paris, tokyo := f.pair(t, echo, func(c *Config) { c.Peers[0].Dial = c.Peers[0].Name + ":1" })
			time.Sleep(10 * time.Second)
			pour1 := func(s *site) {
				st := s.open("echo")
				pour(t, st, st, noise(1, 1<<20))
			}
			pour1(paris)
			pour1(tokyo)
			time.Sleep(time.Minute)
			a, b := paris.Stats()[0], tokyo.Stats()[0]
			if a.Carriers != 2 || b.Carriers != 2 || a.Sessions != 1 || b.Sessions != 1 {
				t.Errorf("here %+v\nthere %+v", a, b)
			}
			if d := f.setDown(false); d > 8 {
				t.Errorf("%d carriers were dialed", d)
			}
		})
	}
}
