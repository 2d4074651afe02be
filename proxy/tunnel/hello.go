package tunnel

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// Versions of the protocol that this package speaks. A pair uses the newest that both do.
const (
	minVersion = 1
	maxVersion = 1
)

const helloMagic = "gradprox"

// An incarnation names one life of one side's half of a session: 128 random bits. The zero incarnation is none.
type incarnation [16]byte

func newIncarnation() (i incarnation) {
	rand.Read(i[:]) // never fails
	return i
}

func (i incarnation) String() string { return hex.EncodeToString(i[:4]) }

// A hello is the first record on a carrier, in each direction.
type hello struct {
	min, max uint16 // versions
	name     string // of the site, informative unless the carrier is in clear
	mine     incarnation
	yours    incarnation // the receiver's, as the sender knows it; zero: not yet
	maxBody  int         // of DATA that the sender takes
	streams  int         // that the receiver may open at first
	window   int         // credit that each stream begins with
	codecs   []string
	pads     bool  // PAD records may be sent to it
	short    bool  // records with short headers may be sent to it
	place    place // of the carrier; the dialer's counts
}

// A place says which carrier of the session this is.
type place struct {
	slot       uint8  // 0 to maxSlots-1; the lowest carries small messages
	replace    bool   // the dialer has no other carrier in this slot: one that is there is dead
	generation uint64 // of carriers in this slot, the newest wins
}

const (
	maxSlots     = 16
	maxCodecs    = 256
	maxCodecName = 64
	maxName      = 256
	minWindow    = 16 << 10
)

// Fields of a HELLO. Unknown ones are skipped, so that a later version may add some.
const (
	fieldName        = 1
	fieldIncarnation = 2
	fieldEcho        = 3
	fieldMaxBody     = 4
	fieldStreams     = 5
	fieldWindow      = 6
	fieldCodec       = 7 // once for each
	fieldPlace       = 8
	fieldPads        = 9
	fieldShort       = 10
)

// append appends the body of the record to dst.
func (h *hello) append(dst []byte) []byte {
	dst = append(dst, helloMagic...)
	dst = binary.BigEndian.AppendUint16(dst, h.min)
	dst = binary.BigEndian.AppendUint16(dst, h.max)
	field := func(id uint16, value []byte) {
		dst = binary.BigEndian.AppendUint16(dst, id)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(value)))
		dst = append(dst, value...)
	}
	number := func(id uint16, n int) { field(id, binary.BigEndian.AppendUint32(nil, uint32(n))) }
	field(fieldName, []byte(h.name))
	field(fieldIncarnation, h.mine[:])
	field(fieldEcho, h.yours[:])
	number(fieldMaxBody, h.maxBody)
	number(fieldStreams, h.streams)
	number(fieldWindow, h.window)
	for _, c := range h.codecs {
		field(fieldCodec, []byte(c))
	}
	b := []byte{h.place.slot, 0}
	if h.place.replace {
		b[1] = 1
	}
	field(fieldPlace, binary.BigEndian.AppendUint64(b, h.place.generation))
	if h.pads {
		field(fieldPads, nil)
	}
	if h.short {
		field(fieldShort, nil)
	}
	return dst
}

// parseHello parses the body of a HELLO record. It retains nothing of b. A version that this side does not
// speak is no error here: see agree.
func parseHello(b []byte) (*hello, error) {
	if len(b) < len(helloMagic)+4 || string(b[:len(helloMagic)]) != helloMagic {
		return nil, fmt.Errorf("HELLO does not begin with %q: the other end is not a gradproxy tunnel", helloMagic)
	}
	b = b[len(helloMagic):]
	h := &hello{min: binary.BigEndian.Uint16(b), max: binary.BigEndian.Uint16(b[2:])}
	if h.min > h.max {
		return nil, fmt.Errorf("HELLO with versions %d to %d", h.min, h.max)
	}
	var had [fieldShort + 1]bool
	for b = b[4:]; len(b) > 0; {
		if len(b) < 4 {
			return nil, fmt.Errorf("HELLO ends within a field")
		}
		id, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		b = b[4:]
		if n > len(b) {
			return nil, fmt.Errorf("HELLO field %d of %d bytes where %d are left", id, n, len(b))
		}
		if int(id) < len(had) {
			if had[id] && id != fieldCodec {
				return nil, fmt.Errorf("HELLO field %d twice", id)
			}
			had[id] = true
		}
		if err := h.set(id, b[:n]); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	for _, id := range []int{fieldName, fieldIncarnation, fieldMaxBody, fieldStreams, fieldWindow} {
		if !had[id] {
			return nil, fmt.Errorf("HELLO without field %d", id)
		}
	}
	return h, nil
}

// set stores one field. A known field may be longer than this version needs: the rest is a later version's.
func (h *hello) set(id uint16, v []byte) error {
	short := func(n int) error { return fmt.Errorf("HELLO field %d of %d bytes, not %d", id, len(v), n) }
	number := func(dst *int, minimum int) error {
		if len(v) < 4 {
			return short(4)
		}
		n := binary.BigEndian.Uint32(v)
		if int64(n) < int64(minimum) {
			return fmt.Errorf("HELLO field %d is %d, not at least %d", id, n, minimum)
		}
		*dst = int(min(n, 1<<30))
		return nil
	}
	switch id {
	case fieldName:
		if len(v) == 0 || len(v) > maxName || !utf8.Valid(v) {
			return fmt.Errorf("HELLO with a name of %d bytes, not 1 to %d of UTF-8", len(v), maxName)
		}
		h.name = string(v)
	case fieldIncarnation, fieldEcho:
		if len(v) < 16 {
			return short(16)
		}
		if id == fieldEcho {
			h.yours = incarnation(v[:16])
		} else if h.mine = incarnation(v[:16]); h.mine == (incarnation{}) {
			return fmt.Errorf("HELLO with the zero incarnation")
		}
	case fieldMaxBody:
		return number(&h.maxBody, minMaxBody)
	case fieldStreams:
		return number(&h.streams, 1)
	case fieldWindow:
		return number(&h.window, minWindow)
	case fieldCodec:
		if len(v) > maxCodecName || len(h.codecs) == maxCodecs {
			return fmt.Errorf("HELLO with more than %d codecs, or one of more than %d bytes", maxCodecs, maxCodecName)
		}
		h.codecs = append(h.codecs, string(v))
	case fieldPads:
		h.pads = true
	case fieldShort:
		h.short = true
	case fieldPlace:
		if len(v) < 10 {
			return short(10)
		}
		if v[0] >= maxSlots {
			return fmt.Errorf("HELLO for carrier slot %d, not 0 to %d", v[0], maxSlots-1)
		}
		h.place = place{slot: v[0], replace: v[1]&1 != 0, generation: binary.BigEndian.Uint64(v[2:])}
	}
	return nil
}

// agree returns the version that two sides use.
func agree(mine, theirs *hello) (uint16, error) {
	v := min(mine.max, theirs.max)
	if v < mine.min || v < theirs.min {
		return 0, fmt.Errorf("%q speaks tunnel versions %d to %d, this side %d to %d: upgrade the older one", theirs.name, theirs.min, theirs.max, mine.min, mine.max)
	}
	return v, nil
}
