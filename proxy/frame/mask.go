package frame

import (
	"fmt"

	"github.com/gradproxy/gradproxy/tensor"
)

// Masks is the name under which hellos list, among codecs, that a proxy understands Mask frames. A client masks all
// that it sends over a WebSocket, each message by four bytes of its own (RFC 6455, 5.3): masked elements are noise to
// every codec, and differ each time. Coded are the elements, and the receiver masks them as they were.
const Masks = "masks"

// ParseMask reads the body of a Mask frame.
func ParseMask(body []byte) (m tensor.Mask, err error) {
	if len(body) != len(m) {
		return m, fmt.Errorf("%w: mask of %d bytes, want %d", ErrFrame, len(body), len(m))
	}
	return tensor.Mask(body), nil
}
