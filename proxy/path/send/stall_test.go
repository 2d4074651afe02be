package send

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A virtualSocket is an app's connection inside the process, whose deadlines are in virtual time.
type virtualSocket struct{ net.Conn }

func (s virtualSocket) CloseWrite() error   { return s.Close() }
func (s virtualSocket) SetLinger(int) error { return nil }

// The promises of the documentation.
const (
	stallWithin = 5 * time.Millisecond  // bytes wait no longer after the last byte that came
	dripWithin  = 20 * time.Millisecond // nor, however bytes drip, after the first byte of a block
)

// A virtualApp writes to a Sender in virtual time, in which only waiting takes any.
type virtualApp struct {
	t       *testing.T
	app     net.Conn
	sink    *pathtest.Sink
	env     *path.Env
	written []byte
	ended   chan error
}

// inVirtualTime has f write tensors that the policy wants whole, where the app may wait for an answer amid each.
func inVirtualTime(t *testing.T, f func(a *virtualApp)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		a := &virtualApp{t: t, app: near, sink: new(pathtest.Sink), env: pathtest.NewEnv(t, policy.Rule{Codec: "wide"}), ended: make(chan error, 1)}
		s, err := New(&path.Conn{Env: a.env, App: app.InProcess(virtualSocket{far}), Stream: a.sink, Log: pathtest.Log(t)}, policy.Flow{})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := pathtest.Toy{Flow: true}.New(parser.Conn{})
		s.Parse(p)
		go func() { a.ended <- s.Run() }()
		f(a)
		near.Close()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
		pathtest.Whole(t, a.env)
	})
}

func (a *virtualApp) write(b []byte) {
	a.t.Helper()
	if _, err := a.app.Write(b); err != nil {
		a.t.Fatal(err)
	}
	a.written = append(a.written, b...)
	synctest.Wait()
}

// pass lets time pass.
func (a *virtualApp) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waits reports whether the first n written bytes have not all left. No block becomes whole here, so all travel
// verbatim.
func (a *virtualApp) waits(n int) bool {
	a.t.Helper()
	eachFrame(a.t, a.sink.Sent(), func(f frame.Frame) { n -= len(f.Body) })
	return n > 0
}

// An app that stops amid a block has its bytes leave after the stall timer, and not before.
func TestBlockWaitsForTheStallTimer(t *testing.T) {
	inVirtualTime(t, func(a *virtualApp) {
		a.write(pathtest.ToyPiece(1, 8000, make([]byte, 5000)))
		a.pass(stallWithin - time.Microsecond)
		if !a.waits(len(a.written)) {
			t.Error("part of a block leaves before the rest may have come")
		}
		if a.pass(time.Microsecond); a.waits(len(a.written)) {
			t.Errorf("part of a block waits for more than %v after its last byte", stallWithin)
		}
	})
}

// An app that drips bytes, so that no wait for the next one is long, has them leave once the block has waited for long
// enough.
func TestDrippingBlockWaitsNoLonger(t *testing.T) {
	const every = 2 * time.Millisecond
	inVirtualTime(t, func(a *virtualApp) {
		b := make([]byte, 5000)
		a.write(pathtest.ToyPiece(1, 8000, b)[:8+100])
		held, begun := false, time.Now()
		for i := 100; i < 600; i++ {
			held = held || a.waits(len(a.written))
			a.pass(every)
			a.write(b[i : i+1])
			if since := time.Since(begun); since > dripWithin && a.waits(len(a.written)) {
				t.Errorf("%v after the block began, its bytes wait", since)
				break
			}
		}
		if !held {
			t.Error("the block has not waited at all")
		}
	})
}

// Bytes that belong to no tensor (a PING, a heartbeat) stand behind the part of a tensor that came before them, and
// wait no longer than it may.
func TestOpaqueBytesBehindABlockWaitNoLonger(t *testing.T) {
	for name, every := range map[string]time.Duration{"the app stops": 0, "the app drips": 2 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(a *virtualApp) {
				a.write(pathtest.ToyPiece(1, 8000, make([]byte, 5000)))
				begun, within := time.Now(), stallWithin
				opaque := append(append(pathtest.ToyPiece(2, 1<<20, nil), pathtest.ToyPiece(3, 2<<20, nil)...), 4)
				if len(opaque) != 17 {
					t.Fatal(len(opaque))
				}
				a.write(opaque)
				behind := len(a.written)
				if !a.waits(behind) {
					t.Error("bytes leave before the ones that came first")
				}
				if every > 0 {
					within = dripWithin + every                  // it is the next byte that tells
					a.write(append([]byte{0, 0, 8}, 0, 1, 0, 0)) // the rest of the third head
					for time.Since(begun) < within {
						a.pass(every)
						a.write([]byte{byte(len(a.written))})
					}
				}
				a.pass(begun.Add(within).Sub(time.Now()))
				if a.waits(behind) {
					t.Errorf("17 bytes behind a block wait for more than %v", within)
				}
			})
		})
	}
}
