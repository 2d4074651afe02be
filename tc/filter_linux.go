package tc

import (
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func (f Redirect) filter(device int) *netlink.U32 {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: device, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL,
	}}
}

func (f Match) filter(device int) *netlink.U32 {
	const to4, to6 = 16, 24 // where an IPv4 and an IPv6 header hold the destination (RFC 791, 3.1; RFC 8200, 3)
	u := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: device, Parent: uint32(f.Parent), Priority: f.Pref, Protocol: unix.ETH_P_IP},
		ClassId:     uint32(f.Class),
		Sel:         &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL},
	}
	addr, off := f.To.Masked().Addr().AsSlice(), int32(to4)
	if f.To.Addr().Is6() {
		u.Protocol, off = unix.ETH_P_IPV6, to6
	}
	bits := f.To.Bits()
	for i := 0; i < len(addr) && (i == 0 || i*8 < bits); i += 4 {
		mask := ^uint32(0)
		if left := bits - i*8; left < 32 {
			mask <<= 32 - left
		}
		u.Sel.Keys = append(u.Sel.Keys, nl.TcU32Key{Mask: mask, Val: binary.BigEndian.Uint32(addr[i:]), Off: off + int32(i)})
	}
	return u
}
