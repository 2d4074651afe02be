package site

import (
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// A connection to a peer's host by an address in no network is found, once; carriers, the proxy's own connections to a
// receiver of metrics, connections that the other end has made, ones within networks, to other hosts, and to ports that
// are not intercepted are no such connections.
func TestConnectionsPastTheProxies(t *testing.T) {
	at := netip.MustParseAddrPort
	c := &config.Config{Intercept: config.Intercept{Ports: intercept.Ports{First: 1024, Last: 65535}},
		Peers: []config.Peer{{Name: "tokyo", Dial: "198.51.100.2:7443", Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}}}
	carriers := map[netip.AddrPort]string{at("198.51.100.2:7443"): "tokyo", at("10.2.0.9:5000"): "tokyo", at("198.51.100.2:50000"): "tokyo", at("127.0.0.1:7443"): "tokyo"}
	var own receivers
	own.note("[::ffff:198.51.100.2]:4318")
	for name, tc := range map[string]struct {
		sockets []app.HostSocket
		want    bool
	}{
		"past":             {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("198.51.100.2:29500")}}, true},
		"a carrier":        {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("198.51.100.2:7443")}}, false},
		"another carrier":  {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("198.51.100.2:50000")}}, false},
		"own metrics":      {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("198.51.100.2:4318")}}, false},
		"by the other end": {[]app.HostSocket{{Local: at("0.0.0.0:8080"), Listens: true}, {Local: at("10.1.0.1:8080"), Remote: at("198.51.100.2:40000")}}, false},
		"within":           {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("10.2.0.9:29500")}}, false},
		"another host":     {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("203.0.113.1:29500")}}, false},
		"ssh":              {[]app.HostSocket{{Local: at("10.1.0.1:40000"), Remote: at("198.51.100.2:22")}}, false},
		"this host":        {[]app.HostSocket{{Local: at("127.0.0.1:40000"), Remote: at("127.0.0.1:29500")}}, false},
	} {
		a := aside{reported: map[netip.Addr]bool{}}
		got := a.find(c, carriers, hostsOf(carriers), own.each(), tc.sockets)
		if again := a.find(c, carriers, hostsOf(carriers), own.each(), tc.sockets); len(got) > 0 != tc.want || len(again) > 0 {
			t.Errorf("%s: %v, and then %v", name, got, again)
		}
		for _, peer := range got {
			if peer != "tokyo" {
				t.Errorf("%s: peer %q", name, peer)
			}
		}
	}
}
