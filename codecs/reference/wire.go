package reference

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

// A form is the first byte of an encoding.
type form byte

const (
	formFull       form = iota // the elements themselves
	formXOR                    // their bits against the reference's
	formDifference             // differences of integers, zig-zag
	formSum                    // values that are added to the reference's
	forms
)

const hashLen = 8

// Overhead is the maximum of bytes by which an encoding is longer than the codec's own: form, version and hash.
const Overhead = 1 + binary.MaxVarintLen64 + hashLen

// A header stands before the codec's own encoding.
type header struct {
	form          form
	version, hash uint64 // unless form is formFull
}

// parseHeader returns the header of src and the codec's encoding behind it.
func parseHeader(src []byte) (h header, rest []byte, err error) {
	if len(src) == 0 {
		return h, nil, errShort
	}
	if h.form, rest = form(src[0]), src[1:]; h.form == formFull {
		return h, rest, nil
	}
	version, n := binary.Uvarint(rest)
	if n <= 0 || len(rest)-n < hashLen {
		return h, nil, errShort
	}
	rest = rest[n:]
	h.version, h.hash = version, binary.LittleEndian.Uint64(rest)
	return h, rest[hashLen:], nil
}

// HeadLen returns how many bytes of an encoding stand before the codec's own.
func HeadLen(encoding []byte) (int, error) {
	_, rest, err := parseHeader(encoding)
	return len(encoding) - len(rest), err
}

var errShort = fmt.Errorf("%w: reference: it ends before its version and hash do", codecs.ErrCorrupt)

func errForm(f form) error {
	return fmt.Errorf("%w: reference: form %d, which the codec does not make", codecs.ErrCorrupt, f)
}
