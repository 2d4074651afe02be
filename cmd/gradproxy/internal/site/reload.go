package site

import (
	"reflect"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
)

// Reload puts a new configuration in force: peers, networks, allow-lists, jobs, policy, drain and refused_retry. Open
// connections keep their peer and job. A change of another key takes a restart, and the key is named in the log. After
// an error the old configuration stays in force.
func (s *Site) Reload(c *config.Config) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	stages, hold := s.budgets.plan(c)
	settings, err := settingsOf(c, stages)
	if err != nil {
		return err
	}
	if err := s.beyond(c); err != nil {
		return err
	}
	if err := grown(s.fitted, c, s.allowed, s.log); err != nil {
		return err
	}
	old := s.config.Load()
	if s.redirect != nil {
		if err := s.redirect.Update(c.Networks(), tunnelAddrs(c)); err != nil {
			return err
		}
	}
	if err := s.tunnel.SetPeers(tunnelPeers(c)); err != nil {
		if s.redirect != nil {
			_ = s.redirect.Update(old.Networks(), tunnelAddrs(old)) // the networks were in force before
		}
		return err
	}
	if err := s.proxy.Apply(settings); err != nil {
		return err
	}
	hold()
	s.places.Bound(min(s.maxPlaces, grownBudget(s.fitted, c).places(s.allowed)))
	s.counts.expect(c.Peers)
	s.money.setPrices(c.Peers, s.tunnel.Stats())
	s.config.Store(c)
	s.counts.reloaded(true)
	if keys := needRestart(s.started, c); len(keys) > 0 {
		s.log.Warn("some changes take effect with a restart only", "keys", strings.Join(keys, ", "))
	}
	if s.untraced && c.MayLose() {
		s.log.Warn("no probes began at the start, and this process gave up the rights that they take: restart it to have sums proved")
	}
	s.log.Info("configuration reloaded", "file", c.File)
	return nil
}

// ReloadFailed counts a configuration that could not be put in force.
func (s *Site) ReloadFailed() { s.counts.reloaded(false) }

// needRestart names the keys whose change Reload does not put in force.
func needRestart(a, b *config.Config) []string {
	var keys []string
	for _, x := range []struct {
		key  string
		a, b any
	}{
		{"site", a.Site, b.Site},
		{"tunnel", a.Tunnel.Value(), b.Tunnel.Value()},
		{"intercept", a.Intercept.Value(), b.Intercept.Value()},
		{"forward", forwards(a), forwards(b)},
		{"admin", a.Admin, b.Admin},
		{"otlp", a.OTLP, b.OTLP},
		{"memory", a.Memory, b.Memory},
		{"references", a.References, b.References},
		{"state", a.State.Value(), b.State.Value()},
		{"upgrade", a.Upgrade.Value(), b.Upgrade.Value()},
	} {
		if !reflect.DeepEqual(x.a, x.b) {
			keys = append(keys, x.key)
		}
	}
	return keys
}

func forwards(c *config.Config) []config.Forward {
	var all []config.Forward
	for _, f := range c.Forward {
		all = append(all, f.Value())
	}
	return all
}
