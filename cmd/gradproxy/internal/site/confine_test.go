package site

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/upgrade"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// The ports are the ones of tunnels, of may_dial, of forwards and of name servers. A reload that names another is
// refused, since the dials would be.
func TestPortsAreWhatTheConfigurationDials(t *testing.T) {
	rule := func(first, last uint16) proxy.DialRule {
		return proxy.DialRule{Network: netip.MustParsePrefix("10.0.0.0/8"), First: first, Last: last}
	}
	c := &config.Config{File: "paris.yaml", Peers: []config.Peer{
		{Name: "tokyo", Dial: "tokyo.example:7443", MayDial: []proxy.DialRule{rule(29500, 29502)}}, {Name: "rome"},
	}, Forward: []config.Forward{{Target: netip.MustParseAddrPort("10.2.0.5:9000")}}}
	if got, want := ports(c), []uint16{53, 7443, 9000, 29500, 29501, 29502}; !slices.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	s := &Site{ports: ports(c)}
	more := *c
	more.Peers = append(slices.Clone(c.Peers), config.Peer{Name: "oslo", Dial: "oslo.example:7444"})
	if err := s.beyond(c); err != nil {
		t.Error(err)
	}
	for hint, upgrades := range map[string]*upgrade.Listener{"restart it": nil, "takes the connections over by upgrade.socket": {}} {
		s.upgrades = upgrades
		if err := s.beyond(&more); err == nil || !strings.Contains(err.Error(), "port 7444") || !strings.Contains(err.Error(), hint) {
			t.Errorf("another port: %v, want a hint at %q", err, hint)
		}
	}
	more.Tunnel.Carrier = tunnel.CarrierDTLS
	if err := s.beyond(&more); err != nil {
		t.Errorf("another port of UDP: %v", err)
	}
	more.Tunnel.Carrier = ""
	s.ports = nil
	if err := s.beyond(&more); err != nil {
		t.Errorf("without bounds: %v", err)
	}
	c.Intercept.Mode, c.Intercept.Ports = config.ModeRedirect, intercept.Ports{First: 1024, Last: 65535}
	if n := len(ports(c)); n != confine.MaxPorts+1 {
		t.Errorf("%d of very many ports, want %d", n, confine.MaxPorts+1)
	}
}

// Each mode keeps the capabilities that it needs, and no more.
func TestCapabilitiesOfModes(t *testing.T) {
	for _, x := range []struct {
		mode config.Mode
		exec bool
		want []confine.Capability
	}{
		{config.ModeOff, false, nil},
		{config.ModeRedirect, false, nil},
		{config.ModeTProxy, false, []confine.Capability{confine.NetBindService}},
		{config.ModeCgroup, false, nil},
		{config.ModeCgroup, true, []confine.Capability{confine.Kill}},
	} {
		c := &config.Config{Intercept: config.Intercept{Mode: x.mode}, Policy: []config.Rule{{}}}
		if got := (&Site{started: c}).needs(x.exec).Capabilities; !slices.Equal(got, x.want) {
			t.Errorf("mode %v, exec %v: %v, want %v", x.mode, x.exec, got, x.want)
		}
	}
}

// A site of mode cgroup that dials carriers over datagrams has a process that gives their sockets larger buffers.
// Others need none for that.
func TestDialsDatagrams(t *testing.T) {
	dials := []config.Peer{{Name: "rome"}, {Name: "tokyo", Dial: "tokyo.example:7443"}}
	for _, x := range []struct {
		mode    config.Mode
		carrier string
		peers   []config.Peer
		want    bool
	}{
		{config.ModeCgroup, tunnel.CarrierAuto, dials, true}, {config.ModeCgroup, tunnel.CarrierDTLS, dials, true}, {config.ModeCgroup, tunnel.CarrierTLS, dials, false},
		{config.ModeCgroup, tunnel.CarrierAuto, dials[:1], false}, {config.ModeOff, tunnel.CarrierAuto, dials, false},
	} {
		c := &config.Config{Intercept: config.Intercept{Mode: x.mode}, Peers: x.peers}
		c.Tunnel.Carrier = x.carrier
		if got := dialsDatagrams(c); got != x.want {
			t.Errorf("mode %v, carrier %s, %d peers: %v", x.mode, x.carrier, len(x.peers), got)
		}
	}
}
