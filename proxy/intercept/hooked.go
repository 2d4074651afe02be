package intercept

import (
	"log/slog"
	"net/netip"
)

// Hooks redirect connections to listeners on loopback by other means than nf_tables: package bpf's do so for a cgroup.
// The accepted sockets tell their target by SO_ORIGINAL_DST.
type Hooks interface {
	// Refresh puts them in force for another Timeout. Its errors say their consequence.
	Refresh() error
	// Update changes which connections are redirected, without touching open connections.
	Update(networks []netip.Prefix, tunnels []netip.AddrPort) error
	// Stop ends their force: new connections go directly or are refused, as configured for a dead proxy.
	Stop() error
	// Close removes them.
	Close() error
}

// HookedConfig configures a Hooked.
type HookedConfig struct {
	Networks []netip.Prefix // the peers' networks at first; there is a listener for each of their families
	// Attach makes the hooks, for listeners on these ports of 127.0.0.1 and ::1; 0: there is none.
	Attach func(listen4, listen6 uint16) (Hooks, error)
	// Awaited returns the ports at which connections wait for this process since another one died; 0: none do. nil:
	// none ever do.
	Awaited func() (listen4, listen6 uint16, err error)
	Places  Places       // bounds the open connections
	Log     *slog.Logger // nil discards
	// Failed is told of each refresh that fails, and of nil when one succeeds again; nil: nobody is told.
	Failed func(error)
}
