package intercept

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rulePriority is that of the routing rules of transparent proxies. The kernel's own look up its tables from 32766 on.
const rulePriority = 26481

// routes makes packets with a mark come to this host, whatever their destination is:
//
//	ip [-6] rule add priority 26481 fwmark MARK lookup TABLE
//	ip [-6] route add local default dev lo table TABLE
//
// The table has the number of the mark. Its netlink socket stays in the network namespace where it was opened.
type routes struct {
	handle   *netlink.Handle
	mark     uint32
	families []int
}

// addRoutes puts rules and routes in force, also where a dead proxy left some.
func addRoutes(mark uint32, v4, v6 bool) (*routes, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("intercept: routes: %w", err)
	}
	r := &routes{handle: h, mark: mark}
	if v4 {
		r.families = append(r.families, unix.AF_INET)
	}
	if v6 {
		r.families = append(r.families, unix.AF_INET6)
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return nil, r.fail(err)
	}
	for _, f := range r.families {
		if err := h.RouteReplace(r.route(f, lo.Attrs().Index)); err != nil {
			return nil, r.fail(err)
		}
		if err := h.RuleAdd(r.rule(f)); err != nil && !errors.Is(err, syscall.EEXIST) {
			return nil, r.fail(err)
		}
	}
	return r, nil
}

// fail undoes the changes made, and names the ones that it cannot undo.
func (r *routes) fail(err error) error {
	_ = r.remove()
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("intercept: tproxy adds routes, for which the process lacks CAP_NET_ADMIN: run it as root, give it that capability, or use redirect: %w", err)
	}
	return fmt.Errorf("intercept: tproxy's routes (ip rule add fwmark %#x lookup %[1]d; ip route add local default dev lo table %[1]d): %w", r.mark, err)
}

// remove takes rules and routes away. Ones that are gone already are no error.
func (r *routes) remove() error {
	defer r.handle.Close()
	var errs []error
	for _, f := range r.families {
		for _, err := range []error{r.handle.RuleDel(r.rule(f)), r.handle.RouteDel(r.route(f, 0))} {
			if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, fmt.Errorf("intercept: remove tproxy's routes: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *routes) rule(family int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Mark, rule.Table = family, rulePriority, r.mark, int(r.mark)
	return rule
}

// route returns the route to this host by an interface; 0: whichever.
func (r *routes) route(family, link int) *netlink.Route {
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if family == unix.AF_INET6 {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{Family: family, LinkIndex: link, Dst: all, Table: int(r.mark), Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
}
