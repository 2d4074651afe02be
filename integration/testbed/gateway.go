//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A Gateway is a host through which all packets between a site and the WAN pass.
type Gateway struct {
	*wansim.Namespace
	Addr  netip.Addr // of the site's network, in which it is the default gateway
	Addr6 netip.Addr // the same for IPv6
}

// lan is the device, at both ends, between a site's host and its gateway.
const lan = "lan"

// addGateway puts a gateway before the site.
func (s *Site) addGateway() error {
	ns, err := wansim.NewNamespace(s.Name() + "-gw")
	if err != nil {
		return err
	}
	addr, addr6 := s.Addr.As4(), s.Addr6.As16()
	addr[3], addr6[15] = 254, 254
	s.Gateway = &Gateway{ns, netip.AddrFrom4(addr), netip.AddrFrom16(addr6)}
	s.Interface = lan
	if err := s.cable(); err != nil {
		return fmt.Errorf("testbed: gateway of site %s: %w", s.Site, err)
	}
	return nil
}

// cable joins host and gateway.
func (s *Site) cable() error {
	far, err := netns.GetFromName(s.Gateway.Name())
	if err != nil {
		return err
	}
	defer far.Close()
	err = s.Do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: lan}, PeerName: lan, PeerNamespace: netlink.NsFd(int(far))}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		return raise(netip.PrefixFrom(s.Addr, 24), netip.PrefixFrom(s.Addr6, 48))
	})
	if err != nil {
		return err
	}
	err = s.Gateway.Do(func() error {
		for _, setting := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+setting, []byte("1"), 0o644); err != nil {
				return err
			}
		}
		return raise(netip.PrefixFrom(s.Gateway.Addr, 24), netip.PrefixFrom(s.Gateway.Addr6, 48))
	})
	if err != nil {
		return err
	}
	return s.Do(func() error {
		for _, via := range []netip.Addr{s.Gateway.Addr, s.Gateway.Addr6} {
			bits := via.BitLen()
			all := &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
			if err := netlink.RouteAdd(&netlink.Route{Dst: all, Gw: via.AsSlice()}); err != nil {
				return fmt.Errorf("route by %v: %w", via, err)
			}
		}
		return nil
	})
}

// raise gives the thread's lan its addresses and puts it up.
func raise(addrs ...netip.Prefix) error {
	link, err := netlink.LinkByName(lan)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		network := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		if e := netlink.AddrAdd(link, &netlink.Addr{IPNet: network, Flags: syscall.IFA_F_NODAD}); e != nil {
			err = errors.Join(err, fmt.Errorf("address %v: %w", a, e))
		}
	}
	return errors.Join(err, netlink.LinkSetUp(link))
}
