package wansim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

func TestPipeIsAConn(t *testing.T) {
	for name, l := range map[string]Link{
		"perfect": {},
		"wan":     {Rate: 125e6, Delay: 100 * time.Microsecond, Jitter: 20 * time.Microsecond, Loss: 0.01, Queue: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				w, err := NewWire(l, l)
				if err != nil {
					return nil, nil, nil, err
				}
				a, b, err := w.Pipe()
				return a, b, func() { a.Close(); b.Close(); w.Close() }, err
			})
		})
	}
}

// onPipe runs f with the two ends of a connection over ab and ba in a bubble, where time is exact.
func onPipe(t *testing.T, ab, ba Link, f func(t *testing.T, w *Wire, a, b *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWire(ab, ba, newTimerAlarm)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		a, b, err := w.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		f(t, w, a, b)
	})
}

// takes fails unless f takes exactly want.
func takes(t *testing.T, what string, want time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took != want {
		t.Errorf("%s takes %v, want %v", what, took, want)
	}
}

func mustWrite(t *testing.T, c io.Writer, b []byte) {
	t.Helper()
	if n, err := c.Write(b); n != len(b) || err != nil {
		t.Errorf("Write of %d bytes: %d, %v", len(b), n, err)
	}
}

func mustRead(t *testing.T, c io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Errorf("Read of %d bytes: %v", n, err)
	}
	return b
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

// A byte arrives once its packet of 41 bytes has left the bottleneck and crossed the delay, and the answer likewise.
func TestPipeKeepsTheTimeOfItsLinks(t *testing.T) {
	ab := Link{Rate: 41_000, Delay: 30 * time.Millisecond} // 1 ms for the packet
	ba := Link{Rate: 4100, Delay: 20 * time.Millisecond}   // 10 ms
	onPipe(t, ab, ba, func(t *testing.T, w *Wire, a, b *Conn) {
		takes(t, "a ping", 31*time.Millisecond+30*time.Millisecond, func() {
			mustWrite(t, a, []byte{1})
			mustRead(t, b, 1)
			mustWrite(t, b, []byte{2})
			mustRead(t, a, 1)
		})
		want := Stats{AB: Counters{Packets: 1, Bytes: 41}, BA: Counters{Packets: 1, Bytes: 41}}
		if got := w.Stats(); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
	})
}

// A bulk transfer takes exactly the time of its packets, however small the queue and however late the sender is woken.
func TestBulkTransferFillsTheLink(t *testing.T) {
	data := random(146_000_000 / 10) // 10,000 full packets
	for _, queue := range []int{0, 3000, 1 << 20} {
		l := Link{Rate: 1_500_000, Delay: 40 * time.Millisecond, Queue: queue} // a packet a millisecond
		onPipe(t, l, l, func(t *testing.T, w *Wire, a, b *Conn) {
			go func() {
				mustWrite(t, a, data)
				a.CloseWrite()
			}()
			takes(t, "the transfer", 10_000*time.Millisecond+l.Delay, func() {
				if got := mustRead(t, b, len(data)); !bytes.Equal(got, data) {
					t.Error("the bytes differ")
				}
			})
			if _, err := b.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("Read after CloseWrite: %v, want io.EOF", err)
			}
			if got := w.Stats().AB; got.Bytes != 10_000*1500+40 {
				t.Errorf("%d bytes on the link, want those of 10,000 packets and a FIN", got.Bytes)
			}
		})
	}
}

// Two connections share the bottleneck: together they take as long as one would.
func TestConnectionsShareTheBottleneck(t *testing.T) {
	l := Link{Rate: 1_500_000, Queue: 30_000}
	onPipe(t, l, l, func(t *testing.T, w *Wire, a, b *Conn) {
		c, d, err := w.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		data := random(1_460_000)
		takes(t, "twice 1000 packets", 2000*time.Millisecond, func() {
			var both sync.WaitGroup
			for _, pair := range [][2]*Conn{{a, b}, {c, d}} {
				go mustWrite(t, pair[0], data)
				both.Go(func() {
					if !bytes.Equal(mustRead(t, pair[1], len(data)), data) {
						t.Error("the bytes differ")
					}
				})
			}
			both.Wait()
		})
	})
}

// seedThatLoses returns a seed by which exactly the packets are lost whose entry is true.
func seedThatLoses(t *testing.T, pattern ...bool) Link {
	t.Helper()
next:
	for seed := range uint64(10_000) {
		l := Link{Loss: 0.5, Seed: seed}
		p := NewPath(l)
		for _, lost := range pattern {
			if _, ok := p.Admit(begin, 1); ok == lost {
				continue next
			}
		}
		return l
	}
	t.Fatal("no seed below 10,000 gives this pattern")
	panic("unreachable")
}

// A lost packet arrives one round trip late, and so does all behind it on its connection, but nothing on another one.
func TestLostPacketHoldsUpItsConnectionOnly(t *testing.T) {
	// a's first packet, which is then sent again, a's second, c's.
	ab := seedThatLoses(t, true, false, false, false)
	ab.Delay = 30 * time.Millisecond
	ba := Link{Delay: 50 * time.Millisecond}
	onPipe(t, ab, ba, func(t *testing.T, w *Wire, a, b *Conn) {
		c, d, err := w.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, a, []byte{1})
		mustWrite(t, a, []byte{2})
		mustWrite(t, c, []byte{3})
		takes(t, "the packet of the other connection", 30*time.Millisecond, func() { mustRead(t, d, 1) })
		takes(t, "the lost packet, further", 80*time.Millisecond, func() { mustRead(t, b, 1) })
		takes(t, "the packet behind it, further", 0, func() { mustRead(t, b, 1) })
		if got := w.Stats().AB; got.Lost != 1 || got.Packets != 4 {
			t.Errorf("Stats: %+v, want 4 packets and 1 lost", got)
		}
	})
}

// During a black hole nothing arrives and nothing is lost; afterwards all goes on, as late as it lasted.
func TestBlackHoleDelaysAll(t *testing.T) {
	l := Link{Rate: 1_500_000, Delay: 40 * time.Millisecond, Queue: 15_000}
	onPipe(t, l, l, func(t *testing.T, w *Wire, a, b *Conn) {
		data := random(1_460_000) // 1000 packets, 1 s
		go mustWrite(t, a, data)
		go func() {
			time.Sleep(300 * time.Millisecond)
			w.BlackHole(5 * time.Second)
			time.Sleep(time.Second)
			w.BlackHole(6 * time.Second) // until 7.3 s: 2 s more
			time.Sleep(time.Second)
			w.BlackHole(time.Second) // over before the others
		}()
		takes(t, "the transfer", 8*time.Second+l.Delay, func() {
			if !bytes.Equal(mustRead(t, b, len(data)), data) {
				t.Error("the bytes differ")
			}
		})
		takes(t, "a byte afterwards", 40*time.Millisecond+41*time.Second/1_500_000, func() {
			mustWrite(t, a, []byte{1})
			mustRead(t, b, 1)
		})
	})
}

// A writer gets ahead of its reader by a window, and of the bottleneck by its queue; then it waits.
func TestWriteBlocks(t *testing.T) {
	for name, l := range map[string]Link{
		"reader":     {},
		"bottleneck": {Rate: 1000, Queue: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			onPipe(t, l, l, func(t *testing.T, w *Wire, a, b *Conn) {
				a.SetWriteDeadline(time.Now().Add(time.Second))
				n, err := a.Write(make([]byte, 64<<20))
				var timeout net.Error
				if !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Fatalf("Write: %d, %v; want a time-out", n, err)
				}
				if n == 0 || n > 256<<10 {
					t.Errorf("%d bytes were written, want some, at most 256 KiB", n)
				}
				a.SetWriteDeadline(time.Time{})
				go mustWrite(t, a, []byte{1})
				mustRead(t, b, n+1)
			})
		})
	}
}

func TestCloseWriteLeavesTheOtherDirection(t *testing.T) {
	l := Link{Delay: 10 * time.Millisecond}
	onPipe(t, l, l, func(t *testing.T, w *Wire, a, b *Conn) {
		mustWrite(t, a, []byte("question"))
		a.CloseWrite()
		if _, err := a.Write([]byte{1}); err != syscall.EPIPE {
			t.Errorf("Write after CloseWrite: %v, want EPIPE", err)
		}
		if got, err := io.ReadAll(b); string(got) != "question" || err != nil {
			t.Errorf("the other end reads %q, %v", got, err)
		}
		mustWrite(t, b, []byte("answer"))
		b.Close()
		if got, err := io.ReadAll(a); string(got) != "answer" || err != nil {
			t.Errorf("and answers %q, %v", got, err)
		}
	})
}

// Bytes written before a Close arrive; a reset overtakes nothing, but takes the place of unread bytes.
func TestEndsOfAConnection(t *testing.T) {
	l := Link{Rate: 1_500_000, Delay: 10 * time.Millisecond}
	read := func(t *testing.T, c *Conn, want string, wantErr error) {
		t.Helper()
		if got, err := io.ReadAll(c); string(got) != want || err != wantErr {
			t.Errorf("the peer reads %q, %v; want %q, %v", got, err, want, wantErr)
		}
	}
	ends := map[string]func(t *testing.T, w *Wire, a, b *Conn){
		"Close": func(t *testing.T, w *Wire, a, b *Conn) {
			mustWrite(t, a, []byte("last words"))
			a.Close()
			read(t, b, "last words", nil)
		},
		"Close with bytes unread": func(t *testing.T, w *Wire, a, b *Conn) {
			mustWrite(t, b, []byte("unread"))
			synctest.Wait()
			time.Sleep(20 * time.Millisecond)
			a.Close()
			read(t, b, "", syscall.ECONNRESET)
		},
		"bytes that arrive after Close": func(t *testing.T, w *Wire, a, b *Conn) {
			a.Close()
			read(t, b, "", nil)
			mustWrite(t, b, []byte("too late"))
			time.Sleep(30 * time.Millisecond)
			if _, err := b.Write([]byte{1}); err != syscall.ECONNRESET {
				t.Errorf("Write to a closed peer, a round trip later: %v, want ECONNRESET", err)
			}
		},
		"SetLinger(0)": func(t *testing.T, w *Wire, a, b *Conn) {
			mustWrite(t, a, []byte("lost"))
			a.SetLinger(0)
			a.Close()
			takes(t, "the reset", l.Delay+(44+40)*time.Second/1_500_000, func() {
				for err := error(nil); err == nil; _, err = b.Read(make([]byte, 100)) {
				}
			})
			read(t, b, "", syscall.ECONNRESET)
			if _, err := b.Write([]byte{1}); err != syscall.ECONNRESET {
				t.Errorf("Write after a reset: %v, want ECONNRESET", err)
			}
		},
		"Cut": func(t *testing.T, w *Wire, a, b *Conn) {
			mustWrite(t, a, []byte("lost"))
			w.Cut()
			read(t, a, "", syscall.ECONNRESET)
			read(t, b, "", syscall.ECONNRESET)
			c, d, err := w.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, c, []byte("new"))
			c.Close()
			read(t, d, "new", nil)
		},
		"Close of the wire": func(t *testing.T, w *Wire, a, b *Conn) {
			w.Close()
			read(t, a, "", syscall.ECONNRESET)
			if _, _, err := w.Pipe(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Pipe on a closed wire: %v, want net.ErrClosed", err)
			}
		},
		"after Close": func(t *testing.T, w *Wire, a, b *Conn) {
			a.Close()
			if _, err := a.Read(make([]byte, 1)); err != net.ErrClosed {
				t.Errorf("Read: %v, want net.ErrClosed", err)
			}
			if _, err := a.Write([]byte{1}); err != net.ErrClosed {
				t.Errorf("Write: %v, want net.ErrClosed", err)
			}
		},
	}
	for name, f := range ends {
		t.Run(name, func(t *testing.T) { onPipe(t, l, l, f) })
	}
}

// A line's link changes from the next packet on; bytes on their way arrive as they would have.
func TestLinkChangesWhileBytesCross(t *testing.T) {
	slow := Link{Rate: 150_000, Queue: 15_000} // a packet each 10 ms, ten of them in the queue
	fast := Link{Rate: 1_500_000, Queue: 15_000}
	onPipe(t, slow, slow, func(t *testing.T, w *Wire, a, b *Conn) {
		go mustWrite(t, a, make([]byte, 1000*1460))
		takes(t, "100 packets on the slow link, 900 on the fast one", time.Second+900*time.Millisecond, func() {
			mustRead(t, b, 90*1460)
			time.Sleep(time.Millisecond) // now ten are in the queue
			w.ab.setLink(fast, 0)
			mustRead(t, b, 910*1460)
		})
	})
}

func TestReverseIsTheOtherWay(t *testing.T) {
	onPipe(t, Link{Delay: time.Second}, Link{}, func(t *testing.T, w *Wire, _, _ *Conn) {
		b, a, err := w.Reverse().Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if a.LocalAddr().String() != "a" || a.RemoteAddr().String() != "b" || b.LocalAddr().Network() != "wansim" {
			t.Errorf("a is at %v with its peer at %v", a.LocalAddr(), a.RemoteAddr())
		}
		takes(t, "from b to a", 0, func() { mustWrite(t, b, []byte{1}); mustRead(t, a, 1) })
		takes(t, "from a to b", time.Second, func() { mustWrite(t, a, []byte{1}); mustRead(t, b, 1) })
		if got := w.Reverse().Stats(); got.AB != w.Stats().BA {
			t.Errorf("Stats from the other side: %+v", got)
		}
	})
}

func TestWireRefusesImpossibleLinks(t *testing.T) {
	for _, l := range []Link{{Loss: 1}, {Rate: -1}} {
		for _, links := range [][2]Link{{{}, l}, {l, {}}} {
			if w, err := NewWire(links[0], links[1]); err == nil {
				w.Close()
				t.Errorf("NewWire takes %+v", links)
			}
		}
	}
}
