package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever a burst holds, PAD records make its length a multiple of the step, and are records that a peer takes.
func TestPaddingFillsBursts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, step := range []int{minPad, 1500, 4 << 10, 16 << 10, maxPad} {
		for n := range 2000 {
			if n > 100 {
				n = r.IntN(1 << 20)
			}
			p := padder{step: step, burst: n, full: true}
			added := 0
			for {
				b := p.next(nil)
				if len(b) == 0 {
					break
				}
				if len(b) > batchSize {
					t.Fatalf("%d bytes of padding at once", len(b))
				}
				added += len(b)
				p.burst += len(b)
				for len(b) > 0 {
					h, err := parseHeader((*[headerLen]byte)(b), maxBody)
					if err != nil || h.kind != kindPad || headerLen+h.length > len(b) {
						t.Fatalf("step %d, burst of %d: %+v in %d bytes, %v", step, n, h, len(b), err)
					}
					b = b[headerLen+h.length:]
				}
			}
			if (n+added)%step != 0 || added >= step+headerLen {
				t.Fatalf("step %d: %d bytes are padded by %d", step, n, added)
			}
			if p != (padder{step: step}) {
				t.Fatalf("a new burst begins with %+v", p)
			}
		}
	}
	for _, p := range []padder{{step: 4096, burst: 7}, {burst: 7, full: true}} {
		if b := p.next(nil); len(b) > 0 || p.burst != 0 {
			t.Errorf("%+v: %d bytes of padding for a burst without DATA, or for a peer that takes none", p, len(b))
		}
	}
}

// Streams arrive whole with padding, over both carriers and towards peers that do not pad, in messages of all sizes and
// in bulk.
func TestPaddedStreams(t *testing.T) {
	for _, carrier := range []string{CarrierTLS, CarrierDTLS} {
		t.Run(carrier, func(t *testing.T) {
			id := identities(t, "tokyo", "paris")
			ln, err := Listen(carrier, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			start := func(name string, pad int, peer Peer) *Endpoint {
				e, err := New(Config{Name: name, Carrier: carrier, Pad: pad, Identity: id(name), Peers: []Peer{peer}, Accept: echo})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Close() })
				return e
			}
			tokyo := start("tokyo", 0, Peer{Name: "paris", ID: "spiffe://lab/paris"})
			go tokyo.Serve(ln)
			paris := start("paris", 5000, Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: ln.Addr().String()})
			waitUp(t, paris, 2)
			s, err := paris.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 4))
			for range 200 {
				message := make([]byte, 1+r.IntN(1<<r.IntN(17)))
				for i := range message {
					message[i] = byte(r.Uint32())
				}
				if _, err := s.Write(message); err != nil {
					t.Fatal(err)
				}
				back := make([]byte, len(message))
				if _, err := io.ReadFull(s, back); err != nil || !bytes.Equal(back, message) {
					t.Fatalf("a message of %d bytes comes back otherwise, %v", len(message), err)
				}
			}
			bulk := make([]byte, 8<<20)
			for i := range bulk {
				bulk[i] = byte(r.Uint32())
			}
			go func() {
				s.Write(bulk)
				s.CloseWrite()
			}()
			hash := sha256.New()
			if _, err := io.Copy(hash, s); err != nil || [32]byte(hash.Sum(nil)) != sha256.Sum256(bulk) {
				t.Errorf("bulk comes back otherwise, %v", err)
			}
			for _, st := range paris.Stats() {
				if st.Padding == 0 {
					t.Error("nothing was padded")
				}
			}
			for _, st := range tokyo.Stats() {
				if st.Padding != 0 {
					t.Errorf("%d bytes of padding from a side that does not pad", st.Padding)
				}
			}
		})
	}
}

// A WINDOW and a DONE are as long for a stream that has carried much as for any other one where DATA is padded: these
// records are not, and an observer sees their length.
func TestPaddingSidesAcknowledgeInOneLength(t *testing.T) {
	for _, pad := range []int{0, minPad} {
		s := newPeer(&newEndpoint(Config{Name: "a", Pad: pad, Memory: 1 << 30}).home, Peer{Name: "puppet"}).sess
		if err := s.establish(&hello{mine: newIncarnation(), maxBody: maxBody, streams: 4, window: 64 << 10, pads: true, short: true}); err != nil {
			t.Fatal(err)
		}
		c := &carrier{link: deaf(nil), born: time.Now()}
		if !s.attach(c) || !s.short {
			t.Fatal("not attached, or without short headers")
		}
		for _, k := range []kind{kindWindow, kindDone} {
			lengths := map[int]bool{}
			for _, h := range []header{{kind: k, stream: 1}, {kind: k, stream: maxStream, value: maxOffset - 1, credit: maxOffset}} {
				if k == kindDone {
					h.value, h.credit = 0, 0
				}
				c.out = c.out[:0]
				c.appendRecord(h)
				lengths[len(c.out)] = true
			}
			if one := len(lengths) == 1; one != (pad > 0) {
				t.Errorf("padding to %d bytes: a %v has lengths %v", pad, k, lengths)
			}
		}
	}
}

// A peer whose HELLO does not say that it takes PAD records, as that of an earlier version, gets none.
func TestNoPaddingForEarlierVersions(t *testing.T) {
	id := identities(t, "tokyo", "paris")
	for _, pads := range []bool{false, true} {
		e, err := New(Config{Name: "paris", Pad: 4096, Identity: id("paris"), Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo"}}})
		if err != nil {
			t.Fatal(err)
		}
		p := e.list()[0]
		s := newSession(&e.near, &p.far)
		if err := s.establish(&hello{name: "tokyo", mine: incarnation{1}, maxBody: maxBody, streams: 1, window: minWindow, pads: pads}); err != nil {
			t.Fatal(err)
		}
		if got := s.pad; (got == 4096) != pads || (got == 0) == pads {
			t.Errorf("a peer that takes padding: %v; it is padded to %d", pads, got)
		}
		e.Close()
	}
}
