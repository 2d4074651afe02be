package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/cilium/ebpf"
)

// maps are the contents of the kernel's maps, so that a change touches only entries that differ.
type maps struct {
	networks table[bpfPrefix, bpfAddr]
	locals   table[bpfAddr, uint32]
	tunnels  table[bpfEnd, uint32]
}

func newMaps(o *bpfObjects) maps {
	return maps{
		table[bpfPrefix, bpfAddr]{o.Networks, map[bpfPrefix]bpfAddr{}},
		table[bpfAddr, uint32]{o.Locals, map[bpfAddr]uint32{}},
		table[bpfEnd, uint32]{o.Tunnels, map[bpfEnd]uint32{}},
	}
}

// A table is a map of the kernel's with its content.
type table[K, V comparable] struct {
	kernel *ebpf.Map
	holds  map[K]V
}

// set makes the kernel's map hold exactly want. New entries come before old ones go: an address that both hold is
// never missing.
func (t *table[K, V]) set(want map[K]V) error {
	for k, v := range want {
		if old, ok := t.holds[k]; ok && old == v {
			continue
		}
		if err := t.kernel.Put(k, v); err != nil {
			return err
		}
		t.holds[k] = v
	}
	for k := range t.holds {
		if _, ok := want[k]; ok {
			continue
		}
		if err := t.kernel.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(t.holds, k)
	}
	return nil
}

func addrOf(ip netip.Addr) (a bpfAddr) {
	b := ip.As16()
	for i := range a.Word {
		a.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return a
}

func endOf(p netip.AddrPort) bpfEnd {
	return bpfEnd{Ip: addrOf(p.Addr()), Port: networkOrder(p.Port())}
}

func prefixOf(n netip.Prefix) bpfPrefix {
	p := bpfPrefix{Bits: uint32(32 + n.Bits()), Ip: addrOf(n.Addr())}
	if n.Addr().Is4() {
		p.Bits, p.V4 = p.Bits+96, 1
	}
	return p
}

// networkOrder turns a port into the number that has its bytes in network order, and back.
func networkOrder(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

func (a bpfAddr) ip() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

func (e bpfEnd) addrPort() netip.AddrPort {
	if e == (bpfEnd{}) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(e.Ip.ip(), networkOrder(e.Port))
}
