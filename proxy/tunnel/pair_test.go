package tunnel

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// identities makes certificates of spiffe://lab/NAME in a directory of their own.
func identities(t testing.TB, names ...string) func(name string) Identity {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: names}); err != nil {
		t.Fatal(err)
	}
	return func(name string) Identity {
		return Identity{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.pem")}
	}
}

// echo accepts every stream and sends its bytes back.
func echo(_ string, _ []byte, in *Incoming) {
	s := in.Accept()
	if _, err := s.WriteTo(s); err == nil {
		s.CloseWrite()
	}
	s.Close()
}

// tcpPair returns two sites, paris dialing tokyo over loopback TCP.
func tcpPair(t testing.TB, accept func(string, []byte, *Incoming), change func(*Config)) (paris, tokyo *Endpoint) {
	t.Helper()
	return pairOver(t, CarrierTLS, accept, change)
}

// pairOver returns two sites, paris dialing tokyo over loopback by that carrier.
func pairOver(t testing.TB, carrier string, accept func(string, []byte, *Incoming), change func(*Config)) (paris, tokyo *Endpoint) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	ln, err := Listen(carrier, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	make := func(name string, peer Peer) *Endpoint {
		cfg := Config{Name: name, Carrier: carrier, Identity: id(name), Peers: []Peer{peer}, Accept: accept}
		if change != nil {
			change(&cfg)
		}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	tokyo = make("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"})
	go tokyo.Serve(ln)
	paris = make("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: ln.Addr().String()})
	waitUp(t, paris, 2)
	return paris, tokyo
}

// waitUp waits until each session has so many carriers.
func waitUp(t testing.TB, e *Endpoint, carriers int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		up := true
		for _, s := range e.Stats() {
			up = up && s.Carriers >= carriers
		}
		if up {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("no carriers after a minute: %+v", e.Stats())
		}
	}
}

func TestEcho(t *testing.T) {
	for _, carrier := range []string{CarrierTLS, CarrierDTLS} {
		t.Run(carrier, func(t *testing.T) { testEcho(t, carrier) })
	}
}

func testEcho(t *testing.T, carrier string) {
	paris, _ := pairOver(t, carrier, echo, nil)
	s, err := paris.Open(context.Background(), "tokyo", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 10<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	go func() {
		s.Write(data)
		s.CloseWrite()
	}()
	got, err := io.ReadAll(s)
	if err != nil || string(got) != string(data) {
		t.Fatalf("%d bytes came back of %d, err %v", len(got), len(data), err)
	}
}

// counts returns the bytes written to the stream and read from it so far, openings and answers left out.
func (st *Stream) counts() (sent, received uint64) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.end - min(st.end, st.sentBase), st.pos - min(st.pos, st.recvBase)
}
