package intercept

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"
)

// Rules are the rules, and the routes, of a Plan in the network namespace in which they were opened. Changing them
// takes CAP_NET_ADMIN there. Methods are safe for concurrent use.
type Rules struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	rules  *rules
	routes *routes // of a transparent proxy; nil: none
}

// OpenRules puts a plan in force, in place of a table that a dead proxy of the same site left.
func OpenRules(p Plan, log *slog.Logger) (*Rules, error) {
	r := &Rules{log: orDiscard(log)}
	var err error
	if r.rules, err = openRules(p); err != nil {
		return nil, err
	}
	if p.Transparent != 0 {
		r.routes, err = addRoutes(p.Transparent, p.Listen4 != 0, p.Listen6 != 0)
	}
	if err == nil {
		err = r.rules.replace()
	}
	if err != nil {
		return nil, errors.Join(err, r.close(true))
	}
	return r, nil
}

// Refresh implements Enforcer. Rules that somebody has removed (nft flush ruleset) are written again.
func (r *Rules) Refresh() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.rules.refresh()
	if !errors.Is(err, syscall.ENOENT) {
		return err
	}
	if err = r.rules.replace(); err == nil {
		r.log.Warn("intercept: the rules were gone and are written again", "table", r.rules.plan.Table)
	}
	return err
}

// Update implements Enforcer.
func (r *Rules) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.rules.plan
	r.rules.plan.Networks, r.rules.plan.Tunnels = networks, tunnels
	if err := r.rules.write(); err != nil {
		r.rules.plan = old
		return err
	}
	return nil
}

// Expire implements Enforcer.
func (r *Rules) Expire() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.rules.expire()
	if errors.Is(err, syscall.ENOENT) { // the table is gone, and its force with it
		return nil
	}
	return err
}

// Remove implements Enforcer.
func (r *Rules) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.rules.remove()
	if r.routes != nil {
		err = errors.Join(err, r.routes.remove())
		r.routes = nil
	}
	return err
}

// Close implements Enforcer.
func (r *Rules) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.close(false)
}

// close closes the sockets. routes: the routes are removed.
func (r *Rules) close(routes bool) error {
	err := r.rules.close()
	if r.routes == nil {
		return err
	}
	if routes {
		err = errors.Join(err, r.routes.remove())
	} else {
		r.routes.handle.Close()
	}
	r.routes = nil
	return err
}
