package tunnel

import (
	"encoding/binary"
	"fmt"
)

// A short header has the numbers of a record as unsigned varints, and leaves out numbers that are always zero. A small
// DATA record mostly has a header of 5 to 9 bytes where the long one has 20, and a WINDOW 8 to 13 bytes in all instead
// of 28. The messages of a parameter server are often shorter than 100 bytes. The package comment has the layout.
//
// The first byte tells the two kinds of header apart, so each record may have either. A long one begins with 0, since
// no body is as long as 2^24 bytes.
const (
	shortMark    = 0x80
	maxShort     = 31 // bytes of the numbers
	shortData    = 7  // bytes that a short header of DATA has in most streams
	maxAnyHeader = max(headerLen, 1+maxShort)
)

// The forms of a short header.
const (
	formData   = 0
	formFin    = 1 // DATA, behind which the direction ends
	formWindow = 2 // without a body
	formDone   = 3
)

// appendShort appends the short header of a DATA, WINDOW or DONE record for a stream.
func (h header) appendShort(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0)
	dst = binary.AppendUvarint(dst, h.stream)
	form := byte(formDone)
	switch h.kind {
	case kindData:
		form = formData
		if h.flags&flagFin != 0 {
			form = formFin
		}
		dst = binary.AppendUvarint(dst, h.value)
		dst = binary.AppendUvarint(dst, uint64(h.length))
	case kindWindow:
		form = formWindow
		dst = binary.AppendUvarint(dst, h.value)
		dst = binary.AppendUvarint(dst, h.credit)
	}
	dst[at] = shortMark | form<<5 | byte(len(dst)-at-1)
	return dst
}

// parseShort is parseHeader for a short header, which b has from its first byte to its last.
func parseShort(b []byte, limit int) (header, error) {
	h, numbers := header{}, [3]uint64{}
	fields := numbers[:]
	switch b[0] >> 5 & 3 {
	case formData:
		h.kind = kindData
	case formFin:
		h.kind, h.flags = kindData, flagFin
	case formWindow:
		h.kind = kindWindow
	case formDone:
		h.kind, fields = kindDone, numbers[:1]
	}
	rest := b[1:]
	for i := range fields {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return h, fmt.Errorf("%v record with a short header of %d bytes, in which number %d does not end", h.kind, len(b), i+1)
		}
		fields[i], rest = v, rest[n:]
	}
	switch {
	case len(rest) > 0:
		return h, fmt.Errorf("%v record with %d bytes behind the numbers of its short header", h.kind, len(rest))
	case numbers[0] == 0 || numbers[0] > maxStream:
		return h, fmt.Errorf("%v record with a short header for stream %d", h.kind, numbers[0])
	}
	h.stream, h.value = numbers[0], numbers[1]
	if h.kind == kindWindow {
		h.credit = numbers[2]
		return h, h.check(windowBody, limit)
	}
	err := h.check(numbers[2], limit)
	if err == nil {
		h.length = int(numbers[2])
	}
	return h, err
}

// shortRecord returns how long the record is that b begins with, which this side has made with a short header.
func shortRecord(b []byte) int {
	n := 1 + int(b[0]&maxShort)
	h, err := parseShort(b[:n], maxBody)
	if err != nil {
		panic("tunnel: a record of this side: " + err.Error())
	}
	return n + h.length
}
