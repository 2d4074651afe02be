package tunnel

import (
	"encoding/binary"
	"fmt"
)

// A record is a header and a body; the package comment has the layout and the meaning of each kind.
const (
	headerLen  = 20
	windowBody = 8 // bytes of the body of a WINDOW

	maxBody    = 256 << 10 // of DATA that this side sends and takes
	minMaxBody = 16 << 10  // the minimum that a HELLO may state
	maxOpening = 4 << 10   // bytes of an opening
	maxText    = 1 << 10   // bytes of a refusal's or an END's text
	maxHello   = 32 << 10  // bytes of a HELLO

	maxOffset = 1 << 62 // stream offsets stay below
	maxStream = 1<<48 - 1
)

const (
	smallBody = 4 << 10  // bodies up to here are copied rather than handed on
	batchSize = 16 << 10 // bytes of small records in one batch: one record of TLS
)

type kind uint8

const (
	kindHello  kind = 1
	kindReady  kind = 2
	kindEnd    kind = 3
	kindData   kind = 4
	kindWindow kind = 5
	kindReset  kind = 6
	kindDone   kind = 7
	kindPing   kind = 8
	kindPong   kind = 9
	kindGoAway kind = 10
	kindLeave  kind = 11
	kindPad    kind = 12
)

func (k kind) String() string {
	switch k {
	case kindHello:
		return "HELLO"
	case kindReady:
		return "READY"
	case kindEnd:
		return "END"
	case kindData:
		return "DATA"
	case kindWindow:
		return "WINDOW"
	case kindReset:
		return "RESET"
	case kindDone:
		return "DONE"
	case kindPing:
		return "PING"
	case kindPong:
		return "PONG"
	case kindGoAway:
		return "GOAWAY"
	case kindLeave:
		return "LEAVE"
	case kindPad:
		return "PAD"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

const flagFin = 1 // on DATA: the direction ends after the body

type header struct {
	length int // of the body
	kind   kind
	flags  uint8
	stream uint64
	value  uint64
	credit uint64 // of a WINDOW with a short header; else the body has it
}

// append appends the header's 20 bytes to dst.
func (h header) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.length))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.kind)<<56|uint64(h.flags)<<48|h.stream)
	return binary.BigEndian.AppendUint64(dst, h.value)
}

// parseHeader reads a header and checks all that can be checked without knowing the session, above all that
// the body is no longer than limit (for DATA) or than its kind can be. So nothing is allocated for a header
// that lies.
func parseHeader(b *[headerLen]byte, limit int) (header, error) {
	word := binary.BigEndian.Uint64(b[4:])
	h := header{
		kind:   kind(word >> 56),
		flags:  uint8(word >> 48),
		stream: word & maxStream,
		value:  binary.BigEndian.Uint64(b[12:]),
	}
	length := binary.BigEndian.Uint32(b[:])
	err := h.check(uint64(length), limit)
	if err == nil {
		h.length = int(length)
	}
	return h, err
}

// check is parseHeader for a header that is read but for the length of the body.
func (h header) check(length uint64, limit int) error {
	minimum, maximum := 0, 0
	var streams, flags uint8 // streams: 0 none, 1 one, 2 either
	switch h.kind {
	case kindHello:
		maximum = maxHello
	case kindReady:
		minimum, maximum = 16, 16
	case kindEnd:
		maximum = maxText
	case kindData:
		maximum, streams, flags = limit, 1, flagFin
	case kindWindow:
		minimum, maximum, streams = windowBody, windowBody, 2
	case kindReset:
		minimum, maximum, streams = 4, 4, 1
	case kindDone:
		streams = 1
	case kindPad:
		maximum = smallBody
	case kindPing, kindPong, kindGoAway, kindLeave:
	default:
		return fmt.Errorf("unknown record of %v", h.kind)
	}
	if length < uint64(minimum) || length > uint64(maximum) {
		return fmt.Errorf("%v record of %d bytes, not %d to %d", h.kind, length, minimum, maximum)
	}
	switch {
	case h.flags&^flags != 0:
		return fmt.Errorf("%v record with unknown flags %#x", h.kind, h.flags)
	case streams == 0 && h.stream != 0:
		return fmt.Errorf("%v record for stream %d", h.kind, h.stream)
	case streams == 1 && h.stream == 0:
		return fmt.Errorf("%v record for no stream", h.kind)
	case h.kind == kindData && length == 0 && h.flags&flagFin == 0:
		return fmt.Errorf("empty DATA record for stream %d", h.stream)
	case h.kind != kindPing && h.kind != kindPong && h.value >= maxOffset:
		return fmt.Errorf("%v record with value %d, over 2^62", h.kind, h.value)
	}
	return nil
}
