package site

import (
	"slices"
	"syscall"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/warden"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// keep starts the process that keeps the rights which interception, and the congestion control, take after the start.
// plan is put in force; nil: there are no rules.
func (s *Site) keep(c *config.Config, plan *intercept.Plan) (*warden.Client, error) {
	k, err := warden.Start(warden.Duty{Plan: plan, Congestion: restricted(c)}, s.log, func(err error) { s.unkept(c, plan != nil, err) })
	if err != nil {
		return nil, err
	}
	s.warden = k
	s.log.Info("rights are kept by a process of its own", "pid", k.Pid())
	return k, nil
}

// keepOptions starts that process where there are no rules, but tunnels ask for options of sockets for which this
// process will lack the right. It must not be in the cgroup to which intercept moves this one.
func (s *Site) keepOptions(c *config.Config) error {
	if keepsRules(c) || !keepsOptions(c) {
		return nil
	}
	_, err := s.keep(c, nil)
	return err
}

// keepsOptions reports whether tunnels ask for options of sockets for which this process will lack the right, and the
// process that keeps rights can be had.
func keepsOptions(c *config.Config) bool {
	return warden.Available && (restricted(c) != "" || dialsDatagrams(c))
}

// restricted returns the congestion control of tunnels if this process will lack the right to choose it; else "".
func restricted(c *config.Config) string {
	if name := congestion(c); name != "" && confine.CongestionTakes(name) {
		return name
	}
	return ""
}

// keepsRules reports whether the process keeps rules.
func keepsRules(c *config.Config) bool {
	return c.Intercept.Mode == config.ModeRedirect || c.Intercept.Mode == config.ModeTProxy
}

// dialsDatagrams reports whether the sockets of carriers over datagrams want larger buffers later, in a mode that has
// the right at the start.
func dialsDatagrams(c *config.Config) bool {
	return c.Intercept.Mode == config.ModeCgroup && c.Tunnel.Carrier != tunnel.CarrierTLS && slices.ContainsFunc(c.Peers, func(p config.Peer) bool { return p.Dial != "" })
}

// unkept tells the end of the process that keeps rights.
func (s *Site) unkept(c *config.Config, rules bool, err error) {
	if !rules {
		s.log.Error("the process that sets options of tunnels' sockets has ended, and only a restart brings another: connections that tunnels make from now on have the kernel's congestion control and buffers", "err", err)
		return
	}
	remedy := "restart it"
	if c.Upgrade.Socket != "" {
		remedy = "start gradproxy run beside it, which takes the connections over by upgrade.socket"
	}
	s.log.Error("the process that keeps the rules has ended, and this one cannot start another: open connections go on, and the rules lose their force within seconds",
		"new_connections", fate(&c.Intercept), "remedy", remedy, "err", err)
}

// options returns the process that sets options of sockets; nil: there is none.
func (s *Site) options() tunnel.SocketOptions {
	if s.warden == nil {
		return nil // and not SocketOptions that hold nil
	}
	return s.warden
}

// control returns a function that marks the proxy's own sockets, so that the rules spare them; nil where there are no
// rules, and where the programs on the proxy's own cgroup mark them.
func (s *Site) control(c *config.Config) func(network, address string, conn syscall.RawConn) error {
	switch {
	case c.Intercept.Mode == config.ModeOff || c.Intercept.Mode == config.ModeCgroup:
		return nil
	case s.warden != nil:
		return s.warden.Mark
	}
	return intercept.Control
}

// asClient returns a function that gives a socket a client's address; nil where servers see this host's.
func (s *Site) asClient(c *config.Config) func(network, address string, conn syscall.RawConn) error {
	switch {
	case c.Intercept.Mode != config.ModeTProxy:
		return nil
	case s.warden != nil:
		return s.warden.MarkClient
	}
	return intercept.TransparentControl
}
