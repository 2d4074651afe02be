package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/datagram"
)

// An unordered is a second Transport, in memory, which uses all the freedom that the contract of Link gives: a record
// for a stream overtakes others wherever it may. It proves identities by saying them.
type unordered struct {
	f     *fabric
	id    string
	moved atomic.Int64 // records that have overtaken another one
}

func (u *unordered) Dial(ctx context.Context, address string) (net.Conn, error) {
	return u.f.dial(ctx, "memory", address)
}

func (u *unordered) Datagrams(net.Conn) bool { return false }

func (u *unordered) Kind(net.Conn) string { return "memory" }

func (u *unordered) Listen(_ context.Context, address string) (net.Listener, error) {
	return u.f.listen(address), nil
}

func (u *unordered) Secure(_ context.Context, conn net.Conn, dialed bool, allow func(id string) error) (Link, error) {
	if _, err := conn.Write(append([]byte{byte(len(u.id))}, u.id...)); err != nil {
		return nil, err
	}
	var n [1]byte
	if _, err := io.ReadFull(conn, n[:]); err != nil {
		return nil, err
	}
	id := make([]byte, n[0])
	if _, err := io.ReadFull(conn, id); err != nil {
		return nil, err
	}
	if err := allow(string(id)); err != nil {
		return nil, err
	}
	return &unorderedLink{Conn: conn, u: u, random: rand.New(rand.NewPCG(1, uint64(len(u.id))))}, nil
}

// An unorderedLink collects records until Flush, and then sends them in another order.
type unorderedLink struct {
	net.Conn
	u        *unordered
	random   *rand.Rand
	records  [][]byte // not sent, in the order of Write
	out      []byte   // on their way
	pending  atomic.Int64
	received atomic.Uint64
}

func (l *unorderedLink) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.received.Add(uint64(n))
	return n, err
}

func (l *unorderedLink) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end, _ := measure(p) // p[:end] panics if a Write ends within a record
		l.records = append(l.records, append([]byte(nil), p[:end]...))
		p = p[end:]
	}
	l.pending.Add(int64(n))
	return n, nil
}

// shuffle moves the records to out in a random order that the contract of Link allows.
func (l *unorderedLink) shuffle() {
	for len(l.records) > 0 {
		may := []int{0}
		for i, r := range l.records[:min(len(l.records), 16)] {
			_, order := measure(r)
			if order == datagram.Fence {
				break
			}
			if i > 0 && order == datagram.Free {
				may = append(may, i)
			}
		}
		i := may[l.random.IntN(len(may))]
		if i > 0 {
			l.u.moved.Add(1)
		}
		l.out = append(l.out, l.records[i]...)
		l.records = append(l.records[:i], l.records[i+1:]...)
	}
}

func (l *unorderedLink) Flush() error {
	l.shuffle()
	_, err := l.Conn.Write(l.out)
	l.out = l.out[:0]
	l.pending.Store(0)
	return err
}

func (l *unorderedLink) TryFlush() (full bool, err error) {
	l.shuffle()
	n, err := l.Conn.(tryWriter).tryWrite(l.out)
	l.out = l.out[:copy(l.out, l.out[n:])]
	l.pending.Store(int64(len(l.out)))
	return len(l.out) > 0, err
}

func (l *unorderedLink) CloseWrite() error {
	if err := l.Flush(); err != nil {
		return err
	}
	return l.Conn.(*fabricConn).CloseWrite()
}

func (l *unorderedLink) Pending() int { return int(l.pending.Load()) }
func (l *unorderedLink) CanTry() bool { return true }
func (l *unorderedLink) Idle()        {}
func (l *unorderedLink) State() LinkState {
	k := l.Conn.(*fabricConn).confirmation()
	return LinkState{Received: l.received.Load(), Waits: k.waits, Silence: k.silence, Patience: k.patience}
}

// bubbles runs f over TLS, and over the Transport that changes the order of records.
func bubbles(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Run("TLS", func(t *testing.T) { bubble(t, f) })
	t.Run(transportUnordered, func(t *testing.T) { bubble(t, f) })
}

const transportUnordered = "unordered"

// transport returns the Transport that the test's name asks of a site in f; nil: TLS over the fabric.
func (f *fabric) transport(t testing.TB, cfg *Config) Transport {
	for _, part := range strings.Split(t.Name(), "/") {
		if part == transportUnordered {
			return &unordered{f: f, id: "spiffe://lab/" + cfg.Name}
		}
	}
	return nil
}

// Many streams at once over a Transport that changes the order of records wherever it may: bytes, ends and openings
// arrive in order on each, while carriers die and are exchanged.
func TestUnorderedRecords(t *testing.T) {
	t.Run(transportUnordered, func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fabric{delay: time.Millisecond, rate: 20 << 20}
			paris, tokyo := f.pair(t, echo, nil)
			up(paris)
			if links := paris.Stats()[0].Links; len(links) == 0 || links[0].Carrier != "memory" {
				t.Errorf("carriers are %+v, want their kind by the Transport's name", links)
			}
			const streams = 48
			done := make(chan error, streams)
			for i := range streams {
				go func() {
					s, err := paris.Open(t.Context(), "tokyo", []byte(fmt.Sprint(i)))
					if err != nil {
						done <- err
						return
					}
					defer s.Close()
					want := noise(byte(i), 200<<10+i)
					go func() {
						for b, n := want, 1; len(b) > 0; n = n*7%30011 + 1 {
							n = min(n, len(b))
							s.Write(b[:n])
							b = b[n:]
						}
						s.CloseWrite()
					}()
					got, err := io.ReadAll(s)
					if err == nil && string(got) != string(want) {
						err = fmt.Errorf("stream %d: %d bytes of %d came back, or other ones", i, len(got), len(want))
					}
					done <- err
				}()
				if i%5 == 4 {
					time.Sleep(20 * time.Millisecond)
					f.each((*fabricConn).kill)
				}
			}
			for range streams {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for _, s := range []*site{paris, tokyo} {
				if moved := s.Endpoint.transport.(*unordered).moved.Load(); moved < 100 {
					t.Errorf("%s: only %d records have overtaken another one", s.cfg.Name, moved)
				}
				if st := s.Stats()[0]; st.Sessions != 1 {
					t.Errorf("%s: %d sessions", s.cfg.Name, st.Sessions)
				}
			}
		})
	})
}

// A Transport that proves nothing, or whose error is ignored, brings no carrier.
func TestTransportMustProve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{}
		var said faults
		for _, name := range []string{"paris", "tokyo"} {
			other := map[string]string{"paris": "tokyo", "tokyo": "paris"}[name]
			f.site(t, Config{Name: name, Peers: []Peer{{Name: other, ID: "spiffe://lab/" + other, Dial: other + ":1"}},
				Events: Events{CarrierFailed: said.add}}, func(c *Config) { c.Transport = careless{&unordered{f: f, id: "spiffe://lab/" + name}} })
		}
		time.Sleep(time.Second)
		said.have(t, "", errNoIdentity.Error())
		if _, err := New(Config{Name: "paris", Insecure: true, Transport: &unordered{}}); err == nil || errors.Is(err, errNoIdentity) {
			t.Errorf("in clear over a Transport of its own: %v", err)
		}
	})
}

// careless is a Transport that asks nobody.
type careless struct{ *unordered }

func (c careless) Secure(ctx context.Context, conn net.Conn, dialed bool, _ func(id string) error) (Link, error) {
	return c.unordered.Secure(ctx, conn, dialed, func(string) error { return nil })
}
