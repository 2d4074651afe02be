package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// An opening is what the proxy beside the client tells the one beside the server of a new connection. Wire: version
// (1 byte), client and server (each: length, then netip.AddrPort's binary form), number, tag (varints). What follows is of a
// later version and skipped.
type opening struct {
	client, server netip.AddrPort // as the app sees them
	number         int            // among the job's live connections with these two addresses (ports left out)
	tag            uint64         // number of the connection among all that this proxy has opened; 0: of an older version
}

// openingVersion begins every opening of an app's connection; other first bytes are for other uses of a stream.
const openingVersion = 1

// maxNumber bounds an opening's number by what a host can have connected to another.
const maxNumber = 1 << 20

var errOpening = errors.New("proxy: bad opening")

func (o *opening) append(dst []byte) []byte {
	dst = append(dst, openingVersion)
	for _, a := range [...]netip.AddrPort{o.client, o.server} {
		b, err := a.MarshalBinary()
		if err != nil {
			panic(err) // netip promises none
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...)
	}
	dst = binary.AppendUvarint(dst, uint64(o.number))
	return binary.AppendUvarint(dst, o.tag)
}

func parseOpening(b []byte) (o opening, err error) {
	r := fields{b: b}
	if v := r.byte(); v != openingVersion {
		return o, fmt.Errorf("%w: version %d, this proxy speaks %d", errOpening, v, openingVersion)
	}
	for _, a := range [...]*netip.AddrPort{&o.client, &o.server} {
		if err := a.UnmarshalBinary(r.next(r.int())); err != nil || !a.IsValid() {
			return o, fmt.Errorf("%w: an address is missing", errOpening)
		}
		*a = unmap(*a)
	}
	o.number = r.int()
	if r.short || o.number > maxNumber {
		return o, fmt.Errorf("%w: number of the connection is missing", errOpening)
	}
	o.tag = uint64(r.int())
	return o, nil
}

// unmap returns a with an IPv4 address where it was written as IPv6, so that rules and keys see one form.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
