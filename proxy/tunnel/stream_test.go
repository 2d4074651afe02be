package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// noise returns n bytes that depend on seed.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// same fails unless got is want.
func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if sha256.Sum256(got) != sha256.Sum256(want) {
		t.Errorf("%s: %d bytes that are not the %d written", what, len(got), len(want))
	}
}

// carries sends bytes from one end of a stream to the other, which must get them, and ends that direction.
func carries(t testing.TB, what string, from, to *Stream, b []byte) {
	t.Helper()
	go func() {
		from.Write(b)
		from.CloseWrite()
	}()
	got, err := io.ReadAll(to)
	if err != nil {
		t.Fatal(err)
	}
	same(t, what, got, b)
}

// meet opens a stream between the two sites and returns both ends.
func meet(t testing.TB, change func(*Config), f *fabric) (near, far *Stream, paris, tokyo *site) {
	t.Helper()
	accepted := make(chan *Stream, 1)
	paris, tokyo = f.pair(t, func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }, change)
	up(paris)
	near = paris.open("meet")
	return near, <-accepted, paris, tokyo
}

// up waits, in virtual time, until the carriers are attached at both ends.
func up(sites ...*site) {
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestHalfCloseOpenerFirst(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, paris, _ := meet(t, nil, &fabric{delay: 10 * time.Millisecond})
		near.Write([]byte("last words"))
		near.CloseWrite()
		if got, err := io.ReadAll(far); err != nil || string(got) != "last words" {
			t.Fatalf("read %q, %v", got, err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		time.Sleep(time.Hour) // for as long as it likes
		want := noise(1, 8<<20)
		carries(t, "after the end of the other direction", far, near, want)
		near.Close()
		far.Close()
		time.Sleep(time.Second)
		if n := paris.Stats()[0].Streams; n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestHalfCloseAcceptorFirst(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, _, tokyo := meet(t, nil, &fabric{delay: 10 * time.Millisecond})
		far.CloseWrite()
		if got, err := io.ReadAll(near); err != nil || len(got) != 0 {
			t.Fatalf("read %q, %v", got, err)
		}
		want := noise(2, 4<<20)
		carries(t, "after the end of the other direction", near, far, want)
		time.Sleep(time.Second) // both directions have ended: the streams are let go without Close
		if n := tokyo.Stats()[0].Streams; n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// A reset arrives as a reset, behind the bytes that have left; with much in flight, in either direction, the bytes that
// arrive are a prefix.
func TestResetWithDataInFlight(t *testing.T) {
	for _, opener := range []bool{true, false} {
		bubbles(t, func(t *testing.T) {
			a, b, paris, tokyo := meet(t, nil, &fabric{delay: 30 * time.Millisecond, rate: 20 << 20})
			if !opener {
				a, b = b, a
			}
			want := noise(3, 32<<20)
			wrote := make(chan error, 1)
			go func() {
				_, err := a.Write(want)
				wrote <- err
			}()
			got, buf := []byte(nil), make([]byte, 100<<10)
			for len(got) < 1<<20 {
				n, err := b.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, buf[:n]...)
			}
			a.Reset(CodeApp + 7)
			a.Reset(CodeApp + 8) // does not count
			var reset *ResetError
			if err := <-wrote; !errors.As(err, &reset) || reset.Remote || reset.Code != CodeApp+7 {
				t.Errorf("Write here: %v", err)
			}
			if _, err := a.Read(buf); !errors.As(err, &reset) || reset.Remote {
				t.Errorf("Read here: %v", err)
			}
			a.session.mu.Lock()
			left := a.left - a.sentBase
			a.session.mu.Unlock()
			for {
				n, err := b.Read(buf)
				got = append(got, buf[:n]...)
				if err != nil {
					if !errors.As(err, &reset) || !reset.Remote || reset.Code != CodeApp+7 {
						t.Errorf("Read there: %v", err)
					}
					break
				}
			}
			same(t, "the prefix", got, want[:left])
			if _, err := b.Write([]byte("x")); !errors.As(err, &reset) || !reset.Remote {
				t.Errorf("Write there: %v", err)
			}
			time.Sleep(time.Second)
			if n, m := paris.Stats()[0].Streams, tokyo.Stats()[0].Streams; n+m != 0 {
				t.Errorf("%d and %d streams are left", n, m)
			}
		})
	}
}

// Done tells of a reset at once, even while the reader is elsewhere.
func TestDoneTellsOfReset(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, _, _ := meet(t, nil, &fabric{delay: time.Millisecond})
		far.Write([]byte("unread"))
		time.Sleep(time.Second)
		select {
		case <-near.Done():
			t.Fatal("done too early")
		default:
		}
		far.Reset(CodeApp)
		<-near.Done()
		if near.Err() == nil || near.Buffered() != len("unread") {
			t.Errorf("Err %v, Buffered %d", near.Err(), near.Buffered())
		}
		if got, err := io.ReadAll(near); string(got) != "unread" || err == nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// Notify calls its function once, as soon as a Read would not wait: at bytes, an end, a reset, or at once; and not
// after it was taken back.
func TestNotify(t *testing.T) {
	for name, speak := range map[string]func(far *Stream){"bytes": func(far *Stream) { far.Write([]byte("x")) }, "an end": func(far *Stream) { far.CloseWrite() },
		"a reset": func(far *Stream) { far.Reset(CodeApp) }} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, func(t *testing.T) {
				near, far, _, _ := meet(t, nil, &fabric{delay: time.Millisecond})
				replaced, called := 0, 0
				near.Notify(func() { replaced++ })
				near.Notify(nil)
				near.Notify(func() { replaced++ })
				near.Notify(func() { called++ })
				time.Sleep(time.Second)
				synctest.Wait()
				if called > 0 {
					t.Fatal("called before anything has come")
				}
				speak(far)
				time.Sleep(time.Second)
				far.Reset(CodeApp) // it is not told of this too
				time.Sleep(time.Second)
				synctest.Wait()
				if called != 1 {
					t.Errorf("called %d times, want once", called)
				}
				near.Notify(func() { called++ })
				synctest.Wait()
				if called != 2 || replaced != 0 {
					t.Errorf("called %d times, want once more: at once; replaced ones %d", called, replaced)
				}
				near.Reset(CodeApp)
			})
		})
	}
}

func TestRefused(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		paris, tokyo := f.pair(t, func(peer string, opening []byte, in *Incoming) {
			if peer != "paris" {
				t.Errorf("peer %q", peer)
			}
			switch string(opening) {
			case "silent":
			case "long":
				in.Refuse(CodeApp, strings.Repeat("x", 2*maxText))
			default:
				in.Refuse(CodeApp+1, "connection refused: "+string(opening))
				in.Refuse(CodeApp+2, "too late")
				if in.Accept() != nil {
					t.Error("accepted after it was refused")
				}
			}
		}, nil)
		up(paris)
		for opening, want := range map[string]RefusedError{
			"10.0.0.1:80": {"tokyo", CodeApp + 1, "connection refused: 10.0.0.1:80"},
			"silent":      {"tokyo", CodeCanceled, "no answer"},
			"long":        {"tokyo", CodeApp, strings.Repeat("x", maxText)},
		} {
			_, err := paris.Open(t.Context(), "tokyo", []byte(opening))
			var refused *RefusedError
			if !errors.As(err, &refused) || *refused != want {
				t.Errorf("opening %q: %v", opening, err)
			}
		}
		if _, err := paris.Open(t.Context(), "berlin", nil); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("unknown peer: %v", err)
		}
		if _, err := paris.Open(t.Context(), "tokyo", make([]byte, maxOpening+1)); err == nil {
			t.Error("an opening that is too long was taken")
		}
		time.Sleep(time.Second)
		if n, m := paris.Stats()[0].Streams, tokyo.Stats()[0].Streams; n+m != 0 {
			t.Errorf("%d and %d streams are left", n, m)
		}
	})
}

// An opener that gives up withdraws its opening, and the acceptor is told.
func TestOpeningWithdrawn(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		told := make(chan bool)
		paris, tokyo := f.pair(t, func(_ string, _ []byte, in *Incoming) {
			<-in.Done()
			if s := in.Accept(); s.Err() == nil {
				t.Error("the stream lives though its opening was withdrawn")
			} else {
				s.Close()
			}
			told <- true
		}, nil)
		up(paris)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := paris.Open(ctx, "tokyo", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err %v", err)
		}
		<-told
		time.Sleep(time.Second)
		if n, m := paris.Stats()[0].Streams, tokyo.Stats()[0].Streams; n+m != 0 {
			t.Errorf("%d and %d streams are left", n, m)
		}
	})
}

// Close with bytes unread, or before bytes that come, is a reset to the peer, as with TCP.
func TestCloseWithBytesUnread(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubbles(t, func(t *testing.T) {
			near, far, _, _ := meet(t, nil, &fabric{delay: time.Millisecond})
			if late {
				near.Close()
				if _, err := far.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("read %v, not EOF", err)
				}
			}
			far.Write([]byte("nobody reads this"))
			time.Sleep(time.Second)
			near.Close()
			time.Sleep(time.Second)
			var reset *ResetError
			if _, err := far.Write([]byte("x")); !errors.As(err, &reset) || reset.Code != CodeClosed || !reset.Remote {
				t.Errorf("late %v: err %v", late, err)
			}
		})
	}
}

// Writes of any size arrive in order, through Read, ReadChunk and WriteTo alike.
func TestAnySizes(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, _, _ := meet(t, nil, &fabric{delay: time.Millisecond})
		want := noise(4, 5<<20)
		go func() {
			r := rand.New(rand.NewPCG(1, 2))
			for b := want; len(b) > 0; {
				n := min(len(b), 1+int(r.ExpFloat64()*20000))
				far.Write(b[:n])
				b = b[n:]
			}
			far.CloseWrite()
		}()
		var got bytes.Buffer
		buf := make([]byte, 70000)
		for got.Len() < 3<<20 {
			n, err := near.Read(buf[:1+got.Len()%len(buf)])
			if err != nil {
				t.Fatal(err)
			}
			got.Write(buf[:n])
			chunk, err := near.ReadChunk()
			if err != nil {
				t.Fatal(err)
			}
			got.Write(chunk)
			clear(chunk) // it is lent
		}
		if _, err := near.WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		same(t, "what was written", got.Bytes(), want)
		if sent, received := near.counts(); sent != 0 || received != uint64(len(want)) {
			t.Errorf("counted %d and %d", sent, received)
		}
		if sent, received := far.counts(); sent != uint64(len(want)) || received != 0 {
			t.Errorf("counted %d and %d", sent, received)
		}
	})
}

// A sequence of 1-byte messages takes the round trips that it must, no delayed acknowledgement or timer.
func TestSmallMessagesDoNotWait(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 20 * time.Millisecond}
		paris, _ := f.pair(t, echo, nil)
		up(paris)
		s := paris.open("echo")
		began := time.Now()
		var b [1]byte
		for i := range 100 {
			s.Write([]byte{byte(i)})
			if _, err := io.ReadFull(s, b[:]); err != nil || b[0] != byte(i) {
				t.Fatal(b, err)
			}
		}
		if d := time.Since(began); d != 100*40*time.Millisecond {
			t.Errorf("100 round trips of 40 ms took %v", d)
		}
	})
}

func TestDrain(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, paris, tokyo := meet(t, nil, &fabric{delay: time.Millisecond})
		drained := make(chan error, 1)
		go func() { drained <- tokyo.Drain(t.Context()) }()
		time.Sleep(time.Second)
		if _, err := paris.Open(t.Context(), "tokyo", nil); !errors.Is(err, ErrDraining) {
			t.Errorf("Open to a side that drains: %v", err)
		}
		if _, err := tokyo.Open(t.Context(), "paris", nil); !errors.Is(err, ErrDraining) {
			t.Errorf("Open from a side that drains: %v", err)
		}
		if !paris.Stats()[0].Draining {
			t.Error("Stats do not say so")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tokyo.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain with a stream open: %v", err)
		}
		want := noise(5, 1<<20)
		carries(t, "while draining", near, far, want)
		far.Close()
		if err := <-drained; err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
}

// Close tells the peer, which need not wait out the resume time.
func TestCloseResetsStreams(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, paris, _ := meet(t, nil, &fabric{delay: time.Millisecond})
		far.Write([]byte("before"))
		time.Sleep(time.Second)
		paris.Close()
		if _, err := near.Write([]byte("x")); !errors.Is(err, ErrSessionLost) {
			t.Errorf("here: %v", err)
		}
		if got, err := io.ReadAll(near); string(got) != "before" || !errors.Is(err, ErrSessionLost) {
			t.Errorf("here: read %q, %v", got, err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, ErrSessionLost) {
			t.Errorf("there: %v", err)
		}
		if _, err := paris.Open(t.Context(), "tokyo", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Open: %v", err)
		}
	})
}
