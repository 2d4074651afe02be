package http2

import (
	"encoding/binary"
	"fmt"
)

// preface is the client's first bytes (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frameHeader is the length of a frame's header in bytes (section 4.1).
const frameHeader = 9

// Types of frames (section 6).
const (
	typeData         = 0
	typeHeaders      = 1
	typePriority     = 2
	typeReset        = 3
	typeSettings     = 4
	typePushPromise  = 5
	typePing         = 6
	typeGoAway       = 7
	typeWindowUpdate = 8
	typeContinuation = 9
)

// Flags of frames.
const (
	flagEndStream  = 0x01 // of DATA and HEADERS
	flagAck        = 0x01 // of SETTINGS
	flagEndHeaders = 0x04 // of HEADERS, PUSH_PROMISE and CONTINUATION
	flagPadded     = 0x08 // of DATA, HEADERS and PUSH_PROMISE
	flagPriority   = 0x20 // of HEADERS
)

// A frame is the frame under way.
type frame struct {
	typ, flags byte
	id         uint32 // of its stream
	lead       int    // bytes before the content: pad length, priority, promised stream
	rest       int    // bytes of the content still to come
	pad        int    // bytes after the content still to come
}

// has reports whether a flag is set.
func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// parseFrame reads a frame's header, of 9 bytes. It returns an error if no frame may be like that.
func parseFrame(b []byte) (f frame, err error) {
	f = frame{
		rest: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		typ:  b[3], flags: b[4],
		id: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
	if f.has(flagPadded) && (f.typ == typeData || f.typ == typeHeaders || f.typ == typePushPromise) {
		f.lead++
	}
	switch {
	case f.typ == typeHeaders && f.has(flagPriority):
		f.lead += 5
	case f.typ == typePushPromise:
		f.lead += 4
	}
	if f.rest < f.lead || !f.fits() {
		return f, fmt.Errorf("no frame of type %d may stand on stream %d with %d bytes", f.typ, f.id, f.rest)
	}
	f.rest -= f.lead
	return f, nil
}

// fits reports whether the type, the stream and the length of a frame fit together (sections 6.1 to 6.10).
func (f *frame) fits() bool {
	switch f.typ {
	case typeData, typeHeaders, typePushPromise, typeContinuation:
		return f.id != 0
	case typePriority:
		return f.id != 0 && f.rest == 5
	case typeReset:
		return f.id != 0 && f.rest == 4
	case typeSettings:
		return f.id == 0 && f.rest%6 == 0 && (f.rest == 0 || !f.has(flagAck))
	case typePing:
		return f.id == 0 && f.rest == 8
	case typeGoAway:
		return f.id == 0 && f.rest >= 8
	case typeWindowUpdate:
		return f.rest == 4
	}
	return true
}

// padding takes the pad length out of the bytes before the content. It returns an error if there is more padding than
// room.
func (f *frame) padding(lead []byte) error {
	if !f.has(flagPadded) {
		return nil
	}
	if f.pad = int(lead[0]); f.pad > f.rest {
		return fmt.Errorf("%d bytes of padding where %d bytes are left", f.pad, f.rest)
	}
	f.rest -= f.pad
	return nil
}
