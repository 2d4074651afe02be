//go:build linux

package integration

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// How a connection between two sites begins and ends must reach the far end unchanged, without proxies, with one
// beside each end, and with one on each gateway.
func TestConnectionsEndAsTheyWere(t *testing.T) {
	link := wansim.Link{Delay: 5 * time.Millisecond}
	for _, c := range []struct {
		name    string
		proxies bool
		wan     func(*testing.T, int, wansim.Link) *testbed.WAN
	}{
		{"direct", false, newWAN},
		{"redirect", true, newWAN},
		{"tproxy", true, newGateways},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.wan(t, 2, link)
			if c.proxies {
				ps := startProxies(t, w, testbed.Config{RefusedRetry: "1s"})
				defer func() { wantCarried(t, ps[0]) }()
			}
			from, to := w.Sites[0], w.Sites[1]
			for family, addr := range map[string]netip.Addr{"IPv4": to.Addr, "IPv6": to.Addr6} {
				t.Run(family, func(t *testing.T) {
					t.Run("FIN one way, data the other", func(t *testing.T) { halfClose(t, from, to, addr) })
					t.Run("RST by the server", func(t *testing.T) { serverResets(t, from, to, addr) })
					t.Run("RST by the client", func(t *testing.T) { clientResets(t, from, to, addr) })
					t.Run("refused", func(t *testing.T) { refused(t, from, to, addr) })
				})
			}
		})
	}
}

// wantCarried fails the test if the connections of the tests above passed the proxy by.
func wantCarried(t *testing.T, p *testbed.Proxy) {
	t.Helper()
	samples, err := p.Metrics(deadline(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if n := testbed.Sum(samples, "gradproxy_opens_total"); n != 8 {
		t.Errorf("the proxy was asked for %v connections, want 8", n)
	}
}

// halfClose: the client says all it has to say, and FIN; only then the server answers, and closes.
func halfClose(t *testing.T, from, to *testbed.Site, addr netip.Addr) {
	client, server := connect(t, from, to, addr)
	question, answer := random(1<<20), random(4<<20)
	go func() {
		client.Write(question)
		client.CloseWrite()
	}()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, question) {
		t.Fatalf("server reads %d bytes, %v; want the client's %d, then EOF", len(got), err, len(question))
	}
	go func() {
		server.Write(answer)
		server.Close()
	}()
	got, err = io.ReadAll(client)
	if err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("client reads %d bytes, %v; want the server's %d, then EOF", len(got), err, len(answer))
	}
}

func serverResets(t *testing.T, from, to *testbed.Site, addr netip.Addr) {
	client, server := connect(t, from, to, addr)
	reset(server)
	wantReset(t, "client", client)
}

func clientResets(t *testing.T, from, to *testbed.Site, addr netip.Addr) {
	client, server := connect(t, from, to, addr)
	reset(client)
	wantReset(t, "server", server)
}

// refused: where nobody listens, the client is refused, or reset in the end, since an interceptor has to accept first.
func refused(t *testing.T, from, to *testbed.Site, addr netip.Addr) {
	client, err := from.Dial(deadline(t, time.Minute), "tcp", netip.AddrPortFrom(addr, 4999).String())
	if err == nil {
		defer client.Close()
		client.SetDeadline(time.Now().Add(time.Minute)) // a proxy without a tunnel holds it for 30 s
		_, err = client.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v, want connection refused or reset", err)
	}
}

// connect returns both ends of a connection over which a byte has passed each way.
func connect(t *testing.T, from, to *testbed.Site, addr netip.Addr) (client, server *net.TCPConn) {
	t.Helper()
	l, err := to.Listen(netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := from.Dial(deadline(t, time.Minute), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	if err := pingPong(dialed, accepted); err != nil {
		t.Fatal(err)
	}
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// pingPong passes a byte from a to b and one back.
func pingPong(a, b net.Conn) error {
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		c[0].SetDeadline(time.Now().Add(time.Minute))
		c[1].SetDeadline(time.Now().Add(time.Minute))
		if _, err := c[0].Write([]byte{'x'}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c[1], make([]byte, 1)); err != nil {
			return err
		}
	}
	return nil
}

// reset closes c with RST in place of FIN.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func wantReset(t *testing.T, who string, c *net.TCPConn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s reads: %v, want connection reset", who, err)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// seconds writes d as the jobs' arguments want it.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
