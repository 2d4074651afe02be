package gloosim

import (
	"context"
	"iter"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A testMesh is n ranks on loopback, in one process.
type testMesh struct {
	groups []*Group
	taps   [][]*tap // by rank and peer, if asked for
}

// meshOptions: noSequence connects as Gloo did before May 2023; tapped keeps all that the ranks write.
type meshOptions struct{ noSequence, tapped bool }

// newMesh connects n ranks.
func newMesh(t testing.TB, n int, o meshOptions) *testMesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := &testMesh{groups: make([]*Group, n), taps: make([][]*tap, n)}
	listeners := make([][]net.Listener, n)
	addrs := make([]netip.AddrPort, n)
	for rank := range n {
		m.taps[rank] = make([]*tap, n)
		listeners[rank] = make([]net.Listener, 1)
		if o.noSequence {
			listeners[rank] = make([]net.Listener, n)
		}
		for i := range listeners[rank] {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if o.tapped {
				l = tapListener{l}
			}
			listeners[rank][i] = l
		}
		addrs[rank] = listeners[rank][0].Addr().(*net.TCPAddr).AddrPort()
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			m.groups[rank], errs[rank] = Connect(ctx, Config{
				Rank: rank, Addrs: addrs, Listeners: listeners[rank], NoSequence: o.noSequence,
				Dial: func(ctx context.Context, peer int) (net.Conn, error) {
					at := 0
					if o.noSequence {
						at = rank
					}
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", listeners[peer][at].Addr().String())
					if err == nil && o.tapped {
						conn = &tap{Conn: conn}
					}
					return conn, err
				},
			})
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		t.Cleanup(m.groups[rank].Close)
		for peer, p := range m.groups[rank].pairs {
			if p != nil && o.tapped {
				m.taps[rank][peer] = p.conn.(*tap)
			}
		}
	}
	return m
}

// each runs f for all ranks at once and fails the test with their errors.
func (m *testMesh) each(t testing.TB, f func(g *Group) error) {
	t.Helper()
	errs := make([]error, len(m.groups))
	var wg sync.WaitGroup
	for rank, g := range m.groups {
		wg.Go(func() { errs[rank] = f(g) })
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// links yields all ordered pairs of ranks.
func (m *testMesh) links() iter.Seq[[2]int] {
	return func(yield func([2]int) bool) {
		for a := range m.groups {
			for b := range m.groups {
				if a != b && !yield([2]int{a, b}) {
					return
				}
			}
		}
	}
}

// ops returns the bytes that rank has written to peer, without the sequence number.
func (m *testMesh) ops(rank, peer int) []byte {
	tap := m.taps[rank][peer]
	stream := tap.stream()
	if tap.first == sequenceLen {
		stream = stream[sequenceLen:]
	}
	return stream
}

// A tap is a connection that keeps all that is written to it.
type tap struct {
	net.Conn
	mu      sync.Mutex
	written []byte
	first   int // bytes of the first write
}

func (c *tap) Write(b []byte) (int, error) {
	c.mu.Lock()
	if len(c.written) == 0 {
		c.first = len(b)
	}
	c.written = append(c.written, b...)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *tap) stream() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.written...)
}

// A tapListener taps the connections that it accepts.
type tapListener struct{ net.Listener }

func (l tapListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tap{Conn: conn}, nil
}
