package intercept

import (
	"log/slog"
	"net/netip"
)

// Hooks turn connections to listeners on loopback by other means than nf_tables: package bpf's do so for a cgroup. The
// accepted sockets tell their target by SO_ORIGINAL_DST.
type Hooks interface {
	// Refresh puts them in force for another Timeout. Its errors say what follows from them.
	Refresh() error
	// Update changes what is turned, without touching open connections.
	Update(networks []netip.Prefix, tunnels []netip.AddrPort) error
	// Stop ends their force: what becomes of new connections is as configured for a dead proxy.
	Stop() error
	// Close removes them.
	Close() error
}

// HookedConfig says what a Hooked serves.
type HookedConfig struct {
	Networks []netip.Prefix // the peers' networks at first, which say what families there are listeners for
	// Attach makes the hooks, for listeners on these ports of 127.0.0.1 and ::1; 0: there is none.
	Attach func(listen4, listen6 uint16) (Hooks, error)
	Gate   Gate         // bounds the open connections
	Log    *slog.Logger // nil discards
	// Failed is told of each refresh that fails, and of nil when one succeeds again; nil: nobody is told.
	Failed func(error)
}
