package tunnel

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// A nat relays datagrams between the clients that send to it and one server, to each client from an address and a port
// of its own, until it forgets them.
type nat struct {
	t      testing.TB
	inside *net.UDPConn
	server *net.UDPAddr
	closed atomic.Bool

	mu       sync.Mutex
	passes   func(b []byte) bool // sees each datagram of a client's, and says whether it passes; nil: each does
	mappings map[string]*net.UDPConn
	made     int
}

func newNAT(t testing.TB, server string) *nat {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	inside.SetReadBuffer(4 << 20)
	n := &nat{t: t, inside: inside, server: a, mappings: map[string]*net.UDPConn{}}
	go n.serve()
	t.Cleanup(func() { n.closed.Store(true); inside.Close(); n.forget() })
	return n
}

func (n *nat) serve() {
	b := make([]byte, 64<<10)
	for {
		k, from, err := n.inside.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		n.mu.Lock()
		m := n.mappings[from.String()]
		if m == nil && !n.closed.Load() {
			if m, err = net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(1+n.made%5))}, n.server); err != nil {
				n.mu.Unlock()
				continue
			}
			m.SetReadBuffer(4 << 20)
			n.mappings[from.String()] = m
			n.made++
			go func() {
				b := make([]byte, 64<<10)
				for {
					k, err := m.Read(b)
					if err != nil && isClosed(err) {
						return
					}
					if err == nil {
						n.inside.WriteToUDPAddrPort(b[:k], from)
					}
				}
			}()
		}
		passes := n.passes
		n.mu.Unlock()
		if m != nil && (passes == nil || passes(b[:k])) {
			m.Write(b[:k])
		}
	}
}

func isClosed(err error) bool {
	op, ok := err.(*net.OpError)
	return ok && op.Err == net.ErrClosed
}

// forget drops all mappings: what the server sends to them is lost, and clients come from other addresses.
func (n *nat) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for from, m := range n.mappings {
		m.Close()
		delete(n.mappings, from)
	}
}

// natPair returns two sites, paris dialing tokyo through a NAT over datagrams.
func natPair(t *testing.T, accept func(string, []byte, *Incoming), change func(*Config)) (paris, tokyo *Endpoint, between *nat) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	ln, err := Listen(CarrierDTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	between = newNAT(t, ln.Addr().String())
	make := func(name string, peer Peer) *Endpoint {
		cfg := Config{Name: name, Carrier: CarrierDTLS, Identity: id(name), Peers: []Peer{peer}, Accept: accept}
		change(&cfg)
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	tokyo = make("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"})
	go tokyo.Serve(ln)
	paris = make("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: between.inside.LocalAddr().String()})
	waitUp(t, paris, 2)
	return paris, tokyo, between
}

// TestNATForgets: a NAT that forgets its mappings in mid-transfer costs neither a byte nor a carrier.
func TestNATForgets(t *testing.T) {
	var lost, sessions atomic.Int32
	paris, tokyo, between := natPair(t, echo, func(c *Config) {
		c.Events.CarrierDown = func(_ string, err error) { t.Logf("lost: %v", err); lost.Add(1) }
		c.Events.SessionUp = func(string) { sessions.Add(1) }
	})
	s, err := paris.Open(context.Background(), "tokyo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 4<<20)
	for i := range data {
		data[i] = byte(i * 13 >> 5)
	}
	for round := range 3 {
		began := time.Now()
		go s.Write(data)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(s, got[:len(data)/4]); err != nil {
			t.Fatal(err)
		}
		between.forget()
		if _, err := io.ReadFull(s, got[len(data)/4:]); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("round %d: %v", round, err)
		}
		t.Logf("round %d took %v", round, time.Since(began))
	}
	if lost.Load() != 0 || sessions.Load() != 2 {
		t.Errorf("%d carriers were lost, %d sessions have begun, want 0 and one at each end", lost.Load(), sessions.Load())
	}
	between.mu.Lock()
	made := between.made
	between.mu.Unlock()
	if made < 4 {
		t.Errorf("%d mappings were made for two carriers: none came from another port", made)
	}
	for _, e := range []*Endpoint{paris, tokyo} {
		if st := e.Stats()[0]; st.Carriers != 2 || st.Outages != 0 && st.Replayed != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestOnlyTheClientMovesACarrier: records of the dialing side that an attacker brings from another address do not move
// a carrier while the dialing side goes on: neither the ones that have come before, nor one that was held back and is
// not the newest, nor the newest one, since the attacker cannot answer the challenge. When the dialing side's own
// address changes, the carrier moves, and data passes in both directions.
func TestOnlyTheClientMovesACarrier(t *testing.T) {
	var between *nat
	var mu sync.Mutex
	var seen [][]byte
	var held []byte // the next one that carries a connection id
	holds := false
	near, far := dtlsPairBy(t, func(address string) string {
		between = newNAT(t, address)
		between.mu.Lock()
		defer between.mu.Unlock()
		between.passes = func(b []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case b[0] < dtlsCipherSpec: // of the connection's beginning: a listener answers everybody
			case holds && b[0] == dtlsWithID:
				held, holds = bytes.Clone(b), false
				return false
			default:
				seen = append(seen, bytes.Clone(b))
			}
			return true
		}
		return between.inside.LocalAddr().String()
	})
	attacker, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77)}, between.server)
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Close()
	answers := func() (n int, longest int) { // to the attacker
		b := make([]byte, 64<<10)
		for attacker.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); ; n++ {
			k, err := attacker.Read(b)
			if err != nil {
				return n, longest
			}
			longest = max(longest, k)
		}
	}
	at := func() string { return far.mover.(*udp.Conn).RemoteAddr().String() }
	goesOn := func(text string) {
		t.Helper()
		passes(t, near, far, text+", there")
		passes(t, far, near, text+", and back")
	}
	goesOn("before")
	home := at()
	ignored := func(what string, all ...[]byte) {
		t.Helper()
		for _, b := range all {
			if _, err := attacker.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if n, longest := answers(); n > 0 {
			t.Errorf("%d datagrams, of %d bytes at most, answer %s", n, longest, what)
		}
		if now := at(); now != home {
			t.Fatalf("%s moves the carrier from %v to %v", what, home, now)
		}
		goesOn("after " + what)
	}
	mu.Lock()
	all := seen
	mu.Unlock()
	ignored("all that has come before", all...)
	hold := func() []byte {
		mu.Lock()
		holds = true
		mu.Unlock()
		goesOn("one is lost")
		mu.Lock()
		defer mu.Unlock()
		return held
	}
	ignored("a record that was held back", hold())
	challenges, longest := 0, 0
	for end := time.Now().Add(time.Minute); challenges == 0; { // a later one may come before it
		if time.Now().After(end) {
			t.Fatal("the newest record is not answered")
		}
		newest := sealed(t, near.writer.(*sealedWriter).seal, 99, "")
		if _, err := attacker.Write(newest); err != nil {
			t.Fatal(err)
		}
		if challenges, longest = answers(); longest > len(newest)+len(udp.RoutingMessage{}) {
			t.Errorf("%d bytes answer %d", longest, len(newest))
		}
		goesOn("after the newest record")
	}
	if challenges != 1 || at() != home {
		t.Errorf("%d challenges answer the newest record, and the carrier is at %v, before at %v", challenges, at(), home)
	}

	between.forget()
	for end := time.Now().Add(time.Minute); at() == home; goesOn("from another address") {
		if time.Now().After(end) {
			t.Fatal("the carrier does not move with its dialing side")
		}
	}
	between.mu.Lock()
	made := between.made
	between.mu.Unlock()
	if host, _, _ := net.SplitHostPort(at()); made != 2 || host != "127.0.0.2" {
		t.Errorf("the carrier has moved to %v, which is not the second of %d addresses", at(), made)
	}
	goesOn("in the end")
}

// TestRecordsFromHomeEndChecks: an attacker that brings the newest record from another address, and relays the check of
// that address, has the carrier only if no newer record has come from the carrier's own address meanwhile. Records that
// are opened together count as well.
func TestRecordsFromHomeEndChecks(t *testing.T) {
	near, far := dtlsPair(t)
	passes(t, near, far, "before")
	seal := near.writer.(*sealedWriter).seal
	attacker, err := net.Dial("udp", near.mover.(*udp.Conn).RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Close()
	at := func() string { return far.mover.(*udp.Conn).RemoteAddr().String() }
	home := at()
	relayed := func(meanwhile func()) {
		t.Helper()
		b := make([]byte, 2000)
		for range 100 {
			attacker.Write(sealed(t, seal, 99, ""))
			attacker.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := attacker.Read(b)
			if err != nil {
				continue
			}
			m, ok := routing{seal, near.open}.Open(b[:n])
			if !ok {
				t.Fatalf("%x is no challenge", b[:n])
			}
			meanwhile()
			m[0] = 1 // path_response
			attacker.Write(sealed(t, seal, dtlsRouting, string(m[:])))
			time.Sleep(100 * time.Millisecond)
			return
		}
		t.Fatal("the newest record is not answered")
	}
	for _, text := range []string{"short", strings.Repeat("long", maxControl)} {
		relayed(func() { passes(t, near, far, text) })
		if at() != home {
			t.Fatalf("the carrier is at %v though a record of %d bytes has come from %v", at(), len(text), home)
		}
	}
	relayed(func() {})
	if at() == home {
		t.Error("without a record from home the carrier stays, so this test shows nothing")
	}
}

// TestNATForgetsAReader: the site that only receives notices by itself that the NAT has forgotten it.
func TestNATForgetsAReader(t *testing.T) {
	var lost atomic.Int32
	data := make([]byte, 2<<20)
	forgotten := make(chan bool)
	paris, _, between := natPair(t, func(_ string, _ []byte, in *Incoming) {
		s := in.Accept()
		s.Write(data)
		<-forgotten
		s.Write(data)
		s.CloseWrite()
	}, func(c *Config) { c.Events.CarrierDown = func(string, error) { lost.Add(1) } })
	s, err := paris.Open(context.Background(), "tokyo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.CopyN(io.Discard, s, int64(len(data))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // all is acknowledged
	between.forget()
	close(forgotten)
	began := time.Now()
	if n, err := io.Copy(io.Discard, s); err != nil || n != int64(len(data)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	t.Logf("the rest came after %v", time.Since(began))
	if lost.Load() != 0 {
		t.Errorf("%d carriers were lost", lost.Load())
	}
}

// TestListenerRestarts: a site whose process was killed, and has come back, has a session again long before its
// carriers would be dead for silence.
func TestListenerRestarts(t *testing.T) {
	id := identities(t, "paris", "tokyo")
	ln, err := Listen(CarrierDTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	start := func(name string, peer Peer) *Endpoint {
		e, err := New(Config{Name: name, Carrier: CarrierDTLS, Identity: id(name), Peers: []Peer{peer}, Accept: echo})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	between := newNAT(t, address)
	tokyo := start("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"})
	go tokyo.Serve(ln)
	paris := start("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: between.inside.LocalAddr().String()})
	waitUp(t, paris, 2)
	s, err := paris.Open(context.Background(), "tokyo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	again := start("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"})
	there, err := Listen(CarrierDTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	between.mu.Lock() // datagrams come to the new process, and none from the one before
	between.server = there.Addr().(*net.UDPAddr)
	between.mu.Unlock()
	between.forget()
	go again.Serve(there)
	began := time.Now()
	go s.Write([]byte("hello")) // as a job does, which knows nothing
	<-s.Done()
	if took := time.Since(began); took > deadAfter/2 {
		t.Errorf("the stream of the session before ended after %v", took)
	} else {
		t.Logf("the stream of the session before ended after %v", took)
	}
	waitUp(t, paris, 1)
	t.Logf("a new session after %v", time.Since(began))
	if s, err = paris.Open(context.Background(), "tokyo", nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
}
