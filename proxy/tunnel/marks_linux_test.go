package tunnel

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// TestMarksOfCongestion: over links whose router marks some packets, wipes marks out or drops packets that have any,
// streams arrive, and a carrier uses marks where they survive.
func TestMarksOfCongestion(t *testing.T) {
	require.Command(t, "nft")
	for name, c := range map[string]struct {
		rules          string
		capable, marks bool
	}{
		"none":    {"", true, false},
		"some":    {"ip ecn ect0 numgen random mod 100 < 10 ip ecn set ce", true, true},
		"wiped":   {"ip ecn != not-ect ip ecn set not-ect", false, false},
		"changed": {"ip ecn ect0 ip ecn set ect1", false, false},
		"dropped": {"meta l4proto udp ip ecn != not-ect drop", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := netns.New(t), netns.New(t)
			netns.Connect(a, b, "wan", []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
			if c.rules != "" {
				b.Do(func() {
					cmd := exec.Command("nft", "-f", "-")
					cmd.Stdin = strings.NewReader("table inet marks { chain c { type filter hook prerouting priority -300; " + c.rules + "; }; }")
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("nft: %v: %s", err, out)
					}
				})
			}
			near, far := carriersBetween(t, a, b, "10.9.0.2:0")
			s, err := near.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			data := make([]byte, 4<<20)
			for i := range data {
				data[i] = byte(i * 13 >> 5)
			}
			go s.Write(data)
			got := make([]byte, len(data))
			if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, data) {
				t.Fatal(err)
			}
			capable, marked := false, uint64(0)
			for _, l := range datagramLinks(near) {
				l.mu.Lock()
				e := l.engine.State()
				l.mu.Unlock()
				capable, marked = capable || e.Marks, marked+e.Marked
			}
			if capable != c.capable || marked > 0 != c.marks {
				t.Errorf("marks are used: %v, and %d packets met congestion", capable, marked)
			}
			if st := far.Stats()[0]; st.Sessions != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// datagramLinks returns the Links over datagrams to a site's only peer.
func datagramLinks(e *Endpoint) (all []*datagramLink) {
	s := e.list()[0].session()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.carriers {
		if l, ok := c.link.(*dtlsLink); ok {
			all = append(all, l.datagramLink)
		}
	}
	return all
}

// dialsFrom is a Transport that dials from a namespace.
type dialsFrom struct {
	Transport
	from *netns.Namespace
}

func (d dialsFrom) Dial(ctx context.Context, address string) (c net.Conn, err error) {
	d.from.Do(func() { c, err = d.Transport.Dial(ctx, address) })
	return c, err
}

// carriersBetween returns two sites with carriers over datagrams, paris in the namespace a dialing tokyo in b.
func carriersBetween(t *testing.T, a, b *netns.Namespace, address string) (paris, tokyo *Endpoint) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	make := func(name string, peer Peer) *Endpoint {
		cfg := Config{Name: name, Carrier: CarrierDTLS, Identity: id(name), Peers: []Peer{peer}, Accept: echo, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		transport, err := newDTLSTransport(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Transport = dialsFrom{transport, a}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	var dial string
	tokyo = make("tokyo", Peer{Name: "paris", ID: "spiffe://lab/paris"})
	b.Do(func() {
		ln, err := Listen(CarrierDTLS, address)
		if err != nil {
			t.Error(err)
			return
		}
		dial = ln.Addr().String()
		go tokyo.Serve(ln)
	})
	paris = make("paris", Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: dial})
	waitUp(t, paris, 2)
	return paris, tokyo
}
