package intercept

import (
	"log/slog"
	"net/netip"
	"time"
)

// RedirectConfig says which connections a Redirect takes over.
type RedirectConfig struct {
	Site     string           // names the table: gradproxy_<site>
	Networks []netip.Prefix   // the peers' networks; at least one
	Ports    Ports            // destination ports; zero: 1024-65535
	Tunnels  []netip.AddrPort // the peers' tunnel addresses, which are never taken
	Gateway  bool             // also take connections that other hosts send through this one; the listener is then open to the network
	Refuse   bool             // see Plan
	Hold     time.Duration    // see Plan
	// Transparent takes connections that other hosts send through this one, and nothing of this host's own, by TPROXY:
	// see Plan.
	Transparent bool
	Places      Places       // bounds the open connections
	Log         *slog.Logger // nil discards
	// Failed is told of each refresh that fails, and of nil when one succeeds again; nil: nobody is told.
	Failed func(error)
	// Enforce puts a plan in force by another process, which has the rights for it after this one has given them up;
	// nil: [OpenRules].
	Enforce func(Plan) (Enforcer, error)
}

// An Enforcer changes the rules of a Plan that is in force: a [Rules] does.
type Enforcer interface {
	// Refresh lets them stay in force for another Timeout.
	Refresh() error
	// Update changes the plan's networks, which must lie apart (see Merge), and tunnels.
	Update(networks []netip.Prefix, tunnels []netip.AddrPort) error
	// Expire ends their force at once.
	Expire() error
	// Remove removes them. Rules that are gone already are no error.
	Remove() error
	// Close leaves them as they are.
	Close() error
}

// Plan returns the rules for listeners on these ports; a port 0 leaves the family out. It needs no privilege.
func (c *RedirectConfig) Plan(listen4, listen6 uint16) Plan {
	p := Plan{Table: TableName(c.Site), Networks: Merge(c.Networks), Ports: c.Ports, Tunnels: c.Tunnels,
		Listen4: listen4, Listen6: listen6, Gateway: c.Gateway, Refuse: c.Refuse, Hold: c.Hold}
	if c.Transparent {
		p.Transparent = markOf(c.Site)
	}
	if p.Ports == (Ports{}) {
		p.Ports = Ports{1024, 65535}
	}
	return p
}

// has reports whether a network is of that family.
func (c *RedirectConfig) has(is func(netip.Addr) bool) bool {
	for _, n := range c.Networks {
		if is(n.Addr()) {
			return true
		}
	}
	return false
}
