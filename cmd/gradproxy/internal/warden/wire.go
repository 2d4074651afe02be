package warden

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// A request is one datagram of a socket pair, and its answer one the other way. Numbers are big-endian.
//
//	request  number(4) op(1) and, by the op,
//	         opBegin   a Duty as JSON
//	         opUpdate  networks(4), each address(16) bits(1) 4 or 6(1), and tunnels, each address(16) port(2)
//	         or nothing; a descriptor of a socket comes with opMark, opClient, opCongestion and opBuffers
//	answer   number(4) and the words of an error; no words: it is done
//
// An address of IPv4 is ::ffff:a.b.c.d. The number is the request's: an answer that came too late for one is not taken
// for another's.
type op byte

const (
	opBegin   op = iota + 1 // once, before all others
	opRefresh               // intercept.Enforcer's
	opUpdate
	opExpire
	opRemove

	opMark       // gives a socket the mark
	opClient     // gives it the mark, and the right to a client's address
	opCongestion // gives it the congestion control
	opBuffers    // gives it large buffers
)

const (
	headLen  = 5
	placeLen = 18 // of a network or an address with its port

	maxPlaces  = 4096                                     // networks and tunnels: a transaction of nf_tables has room for fewer
	maxRequest = max(headLen+4+maxPlaces*placeLen, 1<<18) // of a Duty, too
	maxSocket  = headLen                                  // of a request about a socket
	maxWords   = 1024
)

// A Duty is the task of a warden.
type Duty struct {
	Plan       *intercept.Plan // in force; nil: there are no rules
	Congestion string          // the congestion control that sockets may get; "": none
}

var errForm = errors.New("warden: a datagram is out of form")

// head begins a request or, with op 0, an answer.
func head(number uint32, o op) []byte {
	b := binary.BigEndian.AppendUint32(nil, number)
	if o != 0 {
		b = append(b, byte(o))
	}
	return b
}

// split takes a request apart.
func split(datagram []byte) (number uint32, o op, body []byte, err error) {
	if len(datagram) < headLen {
		return 0, 0, nil, errForm
	}
	return binary.BigEndian.Uint32(datagram), op(datagram[4]), datagram[headLen:], nil
}

// errMany is the error of a configuration with more networks and tunnels than a request has room for.
var errMany = fmt.Errorf("warden: more than %d networks and addresses of tunnels: join networks", maxPlaces)

func encodeUpdate(networks []netip.Prefix, tunnels []netip.AddrPort) ([]byte, error) {
	if len(networks)+len(tunnels) > maxPlaces {
		return nil, errMany
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(networks)))
	for _, n := range networks {
		a, family := n.Addr().As16(), byte(6)
		if n.Addr().Is4() {
			family = 4
		}
		b = append(append(b, a[:]...), byte(n.Bits()), family)
	}
	for _, t := range tunnels {
		a := t.Addr().As16()
		b = binary.BigEndian.AppendUint16(append(b, a[:]...), t.Port())
	}
	return b, nil
}

func decodeUpdate(b []byte) (networks []netip.Prefix, tunnels []netip.AddrPort, err error) {
	if len(b) < 4 || (len(b)-4)%placeLen != 0 {
		return nil, nil, errForm
	}
	n, b := int(binary.BigEndian.Uint32(b)), b[4:]
	if n > len(b)/placeLen {
		return nil, nil, errForm
	}
	for ; n > 0; n, b = n-1, b[placeLen:] {
		a := netip.AddrFrom16([16]byte(b))
		if b[17] == 4 {
			a = a.Unmap()
		}
		p := netip.PrefixFrom(a, int(b[16]))
		if a.Is4() != (b[17] == 4) || b[17] != 4 && b[17] != 6 || !p.IsValid() {
			return nil, nil, errForm
		}
		networks = append(networks, p)
	}
	for ; len(b) > 0; b = b[placeLen:] {
		tunnels = append(tunnels, netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:])))
	}
	return intercept.Merge(networks), tunnels, nil // whoever asks may not have merged them
}

func decodeDuty(b []byte) (d Duty, err error) {
	if err := json.Unmarshal(b, &d); err != nil {
		return d, errForm
	}
	return d, nil
}
