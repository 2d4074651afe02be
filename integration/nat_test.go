//go:build linux

package integration

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// natRules give the tunnel's datagrams another port on their way out, and let nobody else in, as a NAT does.
const natRules = `table inet nat {
	chain out { type nat hook postrouting priority srcnat; udp dport 7443 masquerade to :20000-60000 random; }
	chain in { type filter hook input priority 0; udp dport 7443 ct state new drop; }
}`

// Behind a NAT of the kernel's a carrier over datagrams keeps its mapping while nothing is sent, so that the other side
// reaches it at once, and goes on when the NAT forgets the mapping in mid-transfer. No carrier is lost, and no byte.
func TestBehindNAT(t *testing.T) {
	t.Parallel()
	w := newWAN(t, 2, lan)
	a, b := w.Sites[0], w.Sites[1]
	cmd := a.Command("nft", natRules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	if err := a.SetSysctl("net/netfilter/nf_conntrack_udp_timeout", "8"); err != nil { // 30 s as a rule
		t.Fatal(err)
	}
	if err := a.SetSysctl("net/netfilter/nf_conntrack_udp_timeout_stream", "8"); err != nil {
		t.Fatal(err)
	}
	ps := startProxies(t, w, testbed.Config{Carrier: tunnel.CarrierDTLS})
	ports := func() map[uint16]bool { return mappings(t, a) }
	client, server := connect(t, a, b, b.Addr)
	first := ports()
	data := random(24 << 20)
	for _, way := range []struct{ from, to *net.TCPConn }{{client, server}, {server, client}, {client, server}} {
		way.from.SetDeadline(time.Now().Add(time.Minute))
		way.to.SetDeadline(time.Now().Add(time.Minute))
		before := ports()
		go way.from.Write(data)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(way.to, got[:len(got)/4]); err != nil {
			t.Fatal(err)
		}
		forget(t, a)
		began := time.Now()
		if n, err := io.ReadFull(way.to, got[len(got)/4:]); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes came after the mapping was forgotten: %v", n, err)
		}
		t.Logf("the other 18 MiB came within %v; ports %v, then %v", time.Since(began).Round(time.Millisecond), before, ports())
	}
	if after := ports(); len(first) == 0 || overlap(first, after) {
		t.Errorf("the mappings %v became %v: nothing was forgotten", first, after)
	}

	client, server = connect(t, a, b, b.Addr)
	quiet := ports()
	time.Sleep(25 * time.Second)
	if still := ports(); len(still) == 0 || !overlap(quiet, still) {
		t.Errorf("the mappings %v became %v while nothing was sent", quiet, still)
	}
	began := time.Now()
	if _, err := server.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	client.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 3*time.Second { // a mapping that was forgotten takes the client's next packet, seconds later
		t.Errorf("a byte from the other side took %v after 25 s of silence", took)
	}
	for _, p := range ps {
		m, err := p.Metrics(deadline(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if n := testbed.Sum(m, "gradproxy_peer_sessions_total"); n != 1 {
			t.Errorf("%.0f sessions, want 1", n)
		}
		if n := testbed.Sum(m, "gradproxy_peer_replayed_bytes_total"); n != 0 {
			t.Errorf("%.0f bytes were sent again for lost carriers", n)
		}
	}
}

// forget has the NAT of a site forget its mappings for datagrams of the tunnel.
func forget(t *testing.T, s *testbed.Site) {
	t.Helper()
	if err := s.Do(func() error {
		f := &netlink.ConntrackFilter{}
		if err := errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, 7443)); err != nil {
			return err
		}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, f)
		if err == nil && n == 0 {
			err = errors.New("there was none")
		}
		return err
	}); err != nil {
		t.Fatalf("forget mappings: %v", err)
	}
}

// mappings returns the ports that the NAT of a site has given to datagrams of the tunnel.
func mappings(t *testing.T, s *testbed.Site) map[uint16]bool {
	t.Helper()
	ports := map[uint16]bool{}
	if err := s.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range flows {
			if f.Forward.Protocol == unix.IPPROTO_UDP && f.Forward.DstPort == 7443 {
				ports[f.Reverse.DstPort] = true
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return ports
}

func overlap(a, b map[uint16]bool) bool {
	for port := range a {
		if b[port] {
			return true
		}
	}
	return false
}
