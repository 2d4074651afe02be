package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// A listener is an address on which the proxy is to listen.
type listener struct {
	where   string // in the file
	line    int    // 0: it is the default's
	address string // as it is shown
	host    string // a name, or
	ip      netip.Addr
	every   bool // it is open on every address of both families, as Go's listeners are for 0.0.0.0 and [::]
	port    string
}

// listenOn returns the listener for host:port.
func listenOn(where string, line int, address string) listener {
	l := listener{where: where, line: line, address: address}
	l.host, l.port, _ = net.SplitHostPort(address)
	l.port = strings.TrimLeft(l.port, "0") // 07443 is 7443
	if l.host == "localhost" {
		l.host = "127.0.0.1"
	}
	l.ip, _ = netip.ParseAddr(l.host)
	l.ip = l.ip.Unmap()
	l.every = l.host == "" || l.ip.IsUnspecified()
	return l
}

// meets reports whether the system would refuse one of both.
func (l *listener) meets(o *listener) bool {
	return l.port == o.port && (l.every || o.every || l.host == o.host || l.ip.IsValid() && l.ip == o.ip)
}

// takes reports whether a connection from this host to an address comes to l, as far as that is visible without asking
// the host.
func (l *listener) takes(a netip.AddrPort) bool {
	t := listenOn("", 0, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String())
	local := t.ip.IsLoopback() || t.ip.IsUnspecified() // which dials this host
	return l.port == t.port && (l.every && local || t.ip.IsUnspecified() || l.host == t.host || l.ip.IsValid() && l.ip == t.ip)
}

// listeners returns the proxy's listeners that have a port.
func (k *checker) listeners() []listener {
	var all []listener
	if k.Tunnel.Listen != Off {
		all = append(all, listenOn("tunnel.listen", k.Tunnel.line, k.Tunnel.Listen))
	}
	for i, f := range k.Forward {
		if f.Listen.IsValid() {
			all = append(all, listenOn(fmt.Sprintf("forward[%d].listen", i), f.line, f.Listen.String()))
		}
	}
	if k.Admin != Off && !strings.HasPrefix(k.Admin, "unix:") {
		all = append(all, listenOn("admin", k.lines["admin"], k.Admin))
	}
	return all
}

// itself returns the name of the listener that a connection to a comes to, or "".
func (k *checker) itself(a netip.AddrPort) string {
	for _, l := range k.listeners() {
		if l.takes(a) {
			return l.where
		}
	}
	return ""
}

// ports finds listeners that the system would refuse beside the others.
func (k *checker) ports() {
	all := k.listeners()
	for i := range all {
		for j := range i {
			l, o := &all[i], &all[j]
			if l.line == 0 { // a default: the listener that was written is at fault
				l, o = o, l
			}
			if !l.meets(o) || k.failed(o.where) {
				continue
			}
			of := fmt.Sprintf("in line %d", o.line)
			if o.line == 0 {
				of = "by default"
			}
			k.errorf(l.line, l.where, "%s is taken by %s, %s %s: choose another port", l.address, o.where, o.address, of)
			break
		}
	}
}
