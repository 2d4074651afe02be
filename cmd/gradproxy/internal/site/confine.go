package site

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/otlp"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Confine takes from this process, for good, the rights that the site does not need any more. It must come after Start,
// before any Reload and, unless exec is set, before Run. With exec the job must run already, since a child has the
// walls of its parent.
func (s *Site) Confine(exec bool) {
	n := s.needs(exec)
	if len(n.Ports) <= confine.MaxPorts {
		s.ports = n.Ports
	}
	s.untraced = s.probed != nil && s.probed.prober == nil && probe.Permitted() == nil
	confine.Apply(n, s.log)
}

// needs returns the things that this process still does.
func (s *Site) needs(exec bool) confine.Needs {
	c := s.started
	n := confine.Needs{
		Capabilities: capabilities(c, exec), Files: []string{c.File}, Ports: ports(c),
	}
	if !c.Tunnel.Insecure {
		n.Files = append(n.Files, c.Tunnel.Cert, c.Tunnel.Key, c.Tunnel.CA)
		if c.Tunnel.CRL != "" {
			n.Files = append(n.Files, c.Tunnel.CRL)
		}
	}
	if c.State.Dir != "" {
		n.Write = append(n.Write, c.State.Dir)
	}
	if h, ok := s.redirect.(*hooked); ok {
		n.Maps = true
		n.TryMaps = func() error { _, err := h.hooks.Total(); return err }
		n.Write = append(n.Write, filepath.Dir(filepath.Dir(h.group.Proxy()))) // this process leaves its cgroup at the end, and removes it
	}
	if path, ok := strings.CutPrefix(c.Admin, "unix:"); ok {
		n.Remove = append(n.Remove, filepath.Dir(path))
	}
	if c.Upgrade.Socket != "" {
		n.Remove = append(n.Remove, filepath.Dir(c.Upgrade.Socket))
	}
	return n
}

// capabilities returns the ones that the process needs after its start, beside the ones of the process that keeps
// rights.
func capabilities(c *config.Config, exec bool) []confine.Capability {
	var need []confine.Capability
	if c.Intercept.Mode == config.ModeTProxy { // sockets have clients' ports
		need = append(need, confine.NetBindService)
	}
	if exec { // the command, or a child of it, may be another user's
		need = append(need, confine.Kill)
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// congestion returns the TCP congestion control that carriers ask for; "": the kernel's.
func congestion(c *config.Config) string {
	switch c.Tunnel.Congestion {
	case "default":
		return ""
	case "", "auto":
		return "bbr"
	}
	return c.Tunnel.Congestion
}

// ports returns the TCP ports that a site dials, sorted: tunnels, servers that peers may ask for, servers of
// connections that bypass the tunnel, the receiver of metrics, and name servers. More than confine.MaxPorts are cut off
// behind one more.
func ports(c *config.Config) []uint16 {
	const dns = 53
	var all [1 << 16]bool
	all[dns] = true
	within := func(first, last uint16) {
		for p := int(first); p <= int(last); p++ {
			all[p] = true
		}
	}
	for _, p := range c.Peers {
		if _, port, err := net.SplitHostPort(p.Dial); err == nil && c.Tunnel.Carrier != tunnel.CarrierDTLS { // Landlock bounds TCP only
			if n, err := strconv.ParseUint(port, 10, 16); err == nil {
				all[n] = true
			}
		}
		for _, r := range p.MayDial {
			within(r.First, r.Last)
		}
	}
	for _, f := range c.Forward {
		within(f.Target.Port(), f.Target.Port())
	}
	if p := otlp.Port(c.OTLP); p != 0 {
		within(p, p)
	}
	if c.Intercept.Mode != config.ModeOff {
		within(c.Intercept.Ports.First, c.Intercept.Ports.Last)
	}
	var list []uint16
	for p, is := range all {
		if is && len(list) <= confine.MaxPorts {
			list = append(list, uint16(p))
		}
	}
	return list
}

// beyond returns an error if a configuration dials ports that this process may not dial any more.
func (s *Site) beyond(c *config.Config) error {
	if s.ports == nil {
		return nil
	}
	for _, p := range ports(c) {
		if !slices.Contains(s.ports, p) {
			return fmt.Errorf("%s: peers and may_dial name port %d, and this process dials only the ports that they named at its start, which nothing can widen: %s", c.File, p, s.another())
		}
	}
	return nil
}

// another says what the user must do so that a process with other rights takes the place of this one.
func (s *Site) another() string {
	if s.upgrades != nil {
		return "start gradproxy run with that file beside it, which takes the connections over by upgrade.socket"
	}
	return "restart it; with upgrade.socket a new process would take the connections over"
}
