package wansim

import (
	"bytes"
	"net/netip"
	"testing"
)

// Three sites with a link between every two, one address for each site.
func TestTUNMesh(t *testing.T) {
	sites := []*Namespace{newNamespace(t), newNamespace(t), newNamespace(t)}
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(i), 1}) }
	var links []*TUN
	for i := range sites {
		for j := range i {
			end := func(i, j int) NamespaceEnd {
				return NamespaceEnd{
					Namespace: sites[i], Device: "to" + string(rune('0'+j)),
					Addresses: []netip.Prefix{netip.PrefixFrom(addr(i), 32)},
					Routes:    []netip.Prefix{netip.PrefixFrom(addr(j), 24)},
				}
			}
			links = append(links, connect(t, end(i, j), end(j, i), Link{}, Link{}))
		}
	}
	for i := range sites {
		for j := range sites {
			if i == j {
				continue
			}
			sender, receiver := udp(t, sites[i], sites[j], addr(j))
			mustWrite(t, sender, []byte("hello"))
			b := make([]byte, 10)
			if n, from, err := receiver.ReadFromUDPAddrPort(b); n != 5 || err != nil || from.Addr() != addr(i) {
				t.Errorf("%d bytes from %v arrive, %v; want 5 from %v", n, from, err, addr(i))
			}
		}
	}
	for i, l := range links {
		if s := l.Stats(); s.AB.Packets != 1 || s.BA.Packets != 1 {
			t.Errorf("link %d: %+v, want a packet each way", i, s)
		}
	}
}

// Two sites that reach each other through a third, which routes.
func TestTUNStar(t *testing.T) {
	a, router, b := newNamespace(t), newNamespace(t), newNamespace(t)
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if err := router.SetSysctl(name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	p := netip.MustParsePrefix
	all := []netip.Prefix{p("198.18.0.0/16"), p("2001:db8::/32")}
	connect(t, NamespaceEnd{Namespace: a, Addresses: []netip.Prefix{p("198.18.1.1/24"), p("2001:db8:1::1/64")}, Routes: all},
		NamespaceEnd{Namespace: router, Device: "a", Addresses: []netip.Prefix{p("198.18.1.2/24"), p("2001:db8:1::2/64")}}, Link{}, Link{})
	connect(t, NamespaceEnd{Namespace: b, Addresses: []netip.Prefix{p("198.18.2.1/24"), p("2001:db8:2::1/64")}, Routes: all},
		NamespaceEnd{Namespace: router, Device: "b", Addresses: []netip.Prefix{p("198.18.2.2/24"), p("2001:db8:2::2/64")}}, Link{}, Link{})
	data := random(4 << 20)
	for _, addr := range []string{"198.18.2.1", "2001:db8:2::1"} {
		l := listen(t, b, netip.MustParseAddr(addr))
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			mustWrite(t, c, data)
		}()
		if !bytes.Equal(mustRead(t, dial(t, a, "tcp", l.Addr().String()), len(data)), data) {
			t.Errorf("the bytes from %s differ", addr)
		}
	}
}
