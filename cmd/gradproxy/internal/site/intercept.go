package site

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/warden"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// An interceptor takes connections that were made to the peers' networks.
type interceptor interface {
	Addrs() []netip.AddrPort
	Serve(ctx context.Context, handle intercept.Handler) error
	Update(networks []netip.Prefix, tunnels []netip.AddrPort) error
	Close() error
}

// intercept begins to take connections as c says.
func (s *Site) intercept(c *config.Config) error {
	switch c.Intercept.Mode {
	case config.ModeOff:
		return nil
	case config.ModeCgroup:
		h, err := s.newHooked(c)
		if err != nil {
			return err // and not an interceptor that holds nil
		}
		s.redirect = h
		s.registry.MustRegister(h)
		return nil
	}
	redirect := s.redirectConfig(c)
	if warden.Available {
		redirect.Enforce = func(p intercept.Plan) (intercept.Enforcer, error) { return s.keep(c, &p) }
	}
	r, err := intercept.NewRedirect(redirect)
	if err != nil {
		return err
	}
	s.redirect = r
	return nil
}

func (s *Site) redirectConfig(c *config.Config) intercept.RedirectConfig {
	r := Redirect(c)
	r.Places, r.Log = s.places, s.log
	r.Failed = func(err error) {
		if err == nil {
			s.bypassed.Store(nil)
			return
		}
		s.counts.refreshes.Inc()
		s.bypassed.Store(&err)
	}
	return r
}

// onDeath returns the value of on_death under which connections do not go directly.
func onDeath(c *config.Config) string {
	if c.Intercept.Hold {
		return "hold"
	}
	return "refuse"
}

// undecided tells the fate of new connections under which they do not go directly.
func undecided(c *config.Config) string {
	if c.Intercept.Hold {
		return fmt.Sprintf("wait, at most %v,", intercept.HoldFor)
	}
	return "are refused"
}

// Redirect returns the configuration of the redirect.
func Redirect(c *config.Config) intercept.RedirectConfig {
	hold := time.Duration(0)
	if c.Intercept.Hold {
		hold = intercept.HoldFor
	}
	return intercept.RedirectConfig{Hold: hold, Site: c.Site, Networks: c.Networks(), Ports: c.Intercept.Ports, Tunnels: tunnelAddrs(c),
		Gateway: c.Intercept.Gateway, Refuse: c.Intercept.Refuse, Transparent: c.Intercept.Mode == config.ModeTProxy}
}
