package site

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/otlp"
)

// exporter returns the sender of metrics to a receiver of OTLP. Its connections are the proxy's own, which the rules
// leave alone, and it asks no proxy of the environment.
func (s *Site) exporter(endpoint string) *otlp.Exporter {
	control := s.control(s.started)
	dialer := net.Dialer{Control: func(network, address string, conn syscall.RawConn) error {
		s.receivers.note(address)
		if control == nil {
			return nil
		}
		return control(network, address, conn)
	}}
	return &otlp.Exporter{
		Endpoint: endpoint, Site: s.started.Site, Version: s.version, Gatherer: s.registry, Log: s.log,
		Client: &http.Client{
			Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 1},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// receivers are the addresses to which metrics have been sent: a receiver's name may stand for several, and for others
// later.
type receivers struct {
	mu  sync.Mutex
	all map[netip.AddrPort]bool
}

// maxReceivers bounds the addresses that are kept.
const maxReceivers = 64

// note notes an address before it is dialled.
func (r *receivers) note(address string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= maxReceivers || r.all == nil {
		r.all = map[netip.AddrPort]bool{}
	}
	r.all[netip.AddrPortFrom(at.Addr().Unmap(), at.Port())] = true
}

// each returns the addresses.
func (r *receivers) each() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.all))
}

// export sends metrics to a receiver until ctx ends, and the last ones then. A process that has handed everything over
// sends no last ones, since its successor waits for its end.
func (s *Site) export(ctx context.Context, endpoint string) {
	e := s.exporter(endpoint)
	e.Run(ctx)
	if s.giver == nil {
		e.Last()
	}
}
