package sketched

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

// A kind is the first byte of a message.
type kind uint8

const (
	kindSketch kind = 2 + iota // 1 begins the parameters in golden vectors
	kindCandidates
	kindValues
	kindUpdate
	kindWhole
	kindWholeUpdate
)

func (k kind) String() string {
	names := [...]string{"no message", "no message", "a sketch", "candidates", "values", "an update", "a whole tensor", "a whole update"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("a message of kind %d", uint8(k))
}

const headLen = 1 + 4 // kind and step

// appendHead begins a message.
func appendHead(dst []byte, k kind, step uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(k)), step)
}

// cutHead returns the body of a message, which must be of a kind and step.
func cutHead(msg []byte, k kind, step uint32) (body []byte, err error) {
	if len(msg) < headLen {
		return nil, fmt.Errorf("%w: sketched: %d bytes instead of %v", codecs.ErrCorrupt, len(msg), k)
	}
	if got, of := kind(msg[0]), binary.LittleEndian.Uint32(msg[1:]); got != k || of != step {
		return nil, fmt.Errorf("%w: sketched: %v of step %d instead of %v of step %d", ErrOrder, got, of, k, step)
	}
	return msg[headLen:], nil
}
