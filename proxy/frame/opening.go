package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// An Opening describes a new connection: the proxy beside the client sends it to the one beside the server. Wire:
// version (1 byte), client and server (each: length, then netip.AddrPort's binary form), number, tag (varints). Bytes
// behind are of a later version and skipped.
type Opening struct {
	Client, Server netip.AddrPort // as the app sees them
	Number         int            // among the job's live connections with these two addresses (ports left out)
	Tag            uint64         // number of the connection among all that this proxy has opened; 0: of an older version
}

const (
	// OpeningVersion begins every opening of an app's connection; other first bytes are for other uses of a stream.
	OpeningVersion = 1
	// OpeningValues begins the opening of a value stream: this byte, and the stream's epoch (varint).
	OpeningValues = 2
	// OpeningExcerpt is the opening of a stream on which the peer sends the excerpt of its settings about this site.
	OpeningExcerpt = 3
	// OpeningResume begins the opening of a stream that resumes a connection at rest: this byte, and the connection's
	// Tag.
	OpeningResume = 4
	// OpeningRest is the opening of a stream by which a proxy that another process is to take the place of asks for
	// rest: this byte. The opener writes a Rest frame once all of its connections with the acceptor are at rest, and
	// the acceptor answers with one once its own are. The stream's end in order says that the proxy carries on.
	OpeningRest = 5
	// OpeningView is the opening of a stream on which the peer sends how it sees its traffic with this site.
	OpeningView = 6
)

// maxNumber bounds an opening's number by the connections that a host can have to another.
const maxNumber = 1 << 20

// ErrOpening is wrapped by the errors of ParseOpening.
var ErrOpening = errors.New("proxy: bad opening")

// Append appends the opening as it is on the wire.
func (o *Opening) Append(dst []byte) []byte {
	dst = append(dst, OpeningVersion)
	for _, a := range [...]netip.AddrPort{o.Client, o.Server} {
		b, err := a.MarshalBinary()
		if err != nil {
			panic(err) // netip promises none
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...)
	}
	dst = binary.AppendUvarint(dst, uint64(o.Number))
	return binary.AppendUvarint(dst, o.Tag)
}

// ParseOpening reads an opening.
func ParseOpening(b []byte) (o Opening, err error) {
	r := Fields{B: b}
	if v := r.Byte(); v != OpeningVersion {
		return o, fmt.Errorf("%w: version %d, this proxy speaks %d", ErrOpening, v, OpeningVersion)
	}
	for _, a := range [...]*netip.AddrPort{&o.Client, &o.Server} {
		if err := a.UnmarshalBinary(r.Next(r.Int())); err != nil || !a.IsValid() {
			return o, fmt.Errorf("%w: an address is missing", ErrOpening)
		}
		*a = Unmap(*a)
	}
	o.Number = r.Int()
	if r.Short || o.Number > maxNumber {
		return o, fmt.Errorf("%w: number of the connection is missing", ErrOpening)
	}
	o.Tag = uint64(r.Int())
	return o, nil
}

// Unmap returns a with an IPv4 address where it was written as IPv6, so that rules and keys see one form.
func Unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
