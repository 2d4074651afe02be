package site

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/upgrade"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// held returns the addresses and files that this process gives up only at its end.
func (s *Site) held() []string {
	all := slices.Concat([]string{}, s.addresses())
	if c := s.started; c.State.Dir != "" {
		all = append(all, stateLock(c.State.Dir, c.Site))
	}
	return all
}

// checkOpen returns the error with which open would fail, as far as that is visible while the process that hands p over
// still runs. After open has failed, nobody would have the connections.
func checkOpen(c *config.Config, places int, p *upgrade.Parcel) error {
	if _, err := settingsOf(c, nil); err != nil {
		return err
	}
	if len(p.Connections) > places {
		return fmt.Errorf("there are %d connections, and places for %d in this process: raise the limits of descriptors (ulimit -n, LimitNOFILE=) and of memory", len(p.Connections), places)
	}
	if c.Intercept.Mode != config.ModeOff {
		if err := intercept.TryRedirect(Redirect(c)); err != nil {
			return err
		}
	}
	if c.State.Dir != "" {
		if err := tryState(c, p); err != nil {
			return err
		}
	}
	return tryAddresses(c, p)
}

// tryState finds out whether open could claim the folder of state.
func tryState(c *config.Config, p *upgrade.Parcel) error {
	if slices.Contains(p.Held, stateLock(c.State.Dir, c.Site)) {
		refused, _ := makeState(c.State.Dir) // another error costs the residuals only
		return refused
	}
	lock, refused, _ := claimState(c.State.Dir, c.Site)
	if lock != nil {
		lock.Close()
	}
	return refused
}

// tryAddresses opens the listeners that the other process does not hold, and closes them.
func tryAddresses(c *config.Config, p *upgrade.Parcel) error {
	try := func(address string, open func() (io.Closer, error)) error {
		if address == config.Off || holds(p.Held, address) {
			return nil
		}
		l, err := open()
		if err != nil {
			return err
		}
		return l.Close()
	}
	if err := try(c.Admin, func() (io.Closer, error) { return admin.Listen(c.Admin) }); err != nil {
		return err
	}
	if err := try(c.Tunnel.Listen, func() (io.Closer, error) { return listenCarriers(c.Tunnel.Carrier, c.Tunnel.Listen) }); err != nil {
		return err
	}
	for _, f := range c.Forward {
		if err := try(f.Listen.String(), func() (io.Closer, error) { return intercept.NewForward(f.Listen, f.Target, intercept.Places{}, nil) }); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a process that holds all these would keep another from listening on an address. Of two
// addresses with one port either may cover the other.
func holds(all []string, address string) bool {
	_, port, err := net.SplitHostPort(address)
	return slices.ContainsFunc(all, func(h string) bool {
		if strings.HasPrefix(address, "unix:") || err != nil {
			return h == address
		}
		_, other, err := net.SplitHostPort(strings.TrimPrefix(h, "udp:"))
		return err == nil && other == port
	})
}
