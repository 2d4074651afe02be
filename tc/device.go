package tc

import (
	"fmt"
	"net/netip"
)

// An IFB is a device that queues packets that are redirected to it, so that incoming packets can be shaped as outgoing
// ones.
type IFB struct{ Device }

func (d IFB) String() string {
	return d.command("ip", "link add "+d.Name+" up type ifb")
}

// Inverse implements Rule.
func (d IFB) Inverse() string { return d.command("ip", "link del "+d.Name) }

// AllSegments is the setting of a new device: TCP hands it up to so many segments as one packet.
const AllSegments = 65535

// Segments limits how many TCP or UDP segments cross a device as one packet. With 1, packets are as on the wire:
// otherwise a queue takes, and loss hits, up to 64 KiB at once. Its inverse is AllSegments.
type Segments struct {
	Device
	Max uint32
}

func (d Segments) String() string { return d.set(d.Max) }

// Inverse implements Rule.
func (d Segments) Inverse() string { return d.set(AllSegments) }

func (d Segments) set(limit uint32) string {
	return d.command("ip", fmt.Sprintf("link set dev %s gso_max_segs %d", d.Name, limit))
}

// A Redirect sends all packets that come in on a device, which needs a Clsact, to another one of its namespace, to IFB
// commonly.
type Redirect struct {
	Device
	To string
}

func (f Redirect) String() string {
	return f.command("tc", fmt.Sprintf("filter add dev %s ingress pref 1 protocol all u32 match u32 0 0"+
		" action mirred egress redirect dev %s", f.Name, f.To))
}

// Inverse implements Rule.
func (f Redirect) Inverse() string {
	return f.command("tc", fmt.Sprintf("filter del dev %s ingress pref 1 protocol all u32", f.Name))
}

// A Match sends packets to a class of an HTB by their destination.
type Match struct {
	Device
	Parent Handle // the HTB
	Pref   uint16 // the number of the match in its HTB, from 1 on: the lowest that matches decides
	To     netip.Prefix
	Class  Handle
}

func (f Match) String() string {
	protocol, selector := "ip", "ip"
	if f.To.Addr().Is6() {
		protocol, selector = "ipv6", "ip6"
	}
	return f.command("tc", fmt.Sprintf("filter add dev %s %s pref %d protocol %s u32 match %s dst %v flowid %v",
		f.Name, f.Parent.under(), f.Pref, protocol, selector, f.To, f.Class))
}

// Inverse implements Rule.
func (f Match) Inverse() string {
	return f.command("tc", fmt.Sprintf("filter del dev %s %s pref %d", f.Name, f.Parent.under(), f.Pref))
}
