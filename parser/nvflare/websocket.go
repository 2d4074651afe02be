package nvflare

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/http1"
	"github.com/gradproxy/gradproxy/tensor"
)

// An upgrade has the state that both directions share of the request and the response with which a WebSocket (RFC 6455)
// begins.
type upgrade struct {
	mu    sync.Mutex
	asked bool
}

// A webSocket parses one direction of a WebSocket.
type webSocket struct {
	frames  sfm
	upgrade *upgrade
	head    http1.Collector
	open    bool        // the head of the request or response has come
	copied  []byte      // bytes so far of a WebSocket frame's header
	left    int         // bytes of the payload still to come
	mask    tensor.Mask // of the next bytes
	masked  bool
	whole   bool // the WebSocket frame has all bytes of the tensor that began last
	data    bool // the WebSocket frame is part of a message, rather than a control frame
	err     error
}

// socketPath is the path of NVFlare's WebSocket.
const socketPath = "/f3"

// Next implements parser.Parser.
func (w *webSocket) Next(b []byte) (seg parser.Segment, err error) {
	switch {
	case w.err != nil:
		return seg, w.err
	case !w.open:
		seg.Len, err = w.begin(b)
	case w.left == 0:
		seg.Len, err = w.header(b)
	default:
		seg, err = w.payload(b[:min(len(b), w.left)])
	}
	if err != nil {
		w.err = broken(err, &w.frames)
		return parser.Segment{}, w.err
	}
	return seg, nil
}

// begin takes bytes of the head of the request or response, and returns their number.
func (w *webSocket) begin(b []byte) (int, error) {
	n, whole, err := w.head.Next(b)
	if err != nil {
		return 0, err
	}
	head, want := whole, "GET "
	if whole == nil {
		head = w.head.Begun()
	}
	if w.frames.side == parser.Server {
		want = "HTTP/1."
	}
	if m := min(len(head), len(want)); string(head[:m]) != want[:m] {
		return 0, http1.ErrHead
	}
	if whole == nil {
		return n, nil
	}
	w.open = true
	return n, w.upgraded(whole)
}

// upgraded checks the whole head of the request or response.
func (w *webSocket) upgraded(head []byte) error {
	w.upgrade.mu.Lock()
	defer w.upgrade.mu.Unlock()
	if w.frames.side == parser.Client {
		r, err := http1.ParseRequest(head)
		if err == nil && (r.Path != socketPath || r.Body > 0 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket")) {
			err = fmt.Errorf("%w of NVFlare's: %.40q", http1.ErrHead, r.Path)
		}
		w.upgrade.asked = err == nil
		return err
	}
	r, err := http1.ParseResponse(head, http.MethodGet)
	switch {
	case err != nil:
		return err
	case !w.upgrade.asked || r.Status != http.StatusSwitchingProtocols:
		return fmt.Errorf("%w of a WebSocket: status %d", http1.ErrHead, r.Status)
	case r.Header.Get("Sec-WebSocket-Extensions") != "":
		return fmt.Errorf("%w: the WebSocket has extensions", errFrame)
	}
	return nil
}

// header takes bytes of a WebSocket frame's header (RFC 6455, 5.2), and returns their number.
func (w *webSocket) header(b []byte) (n int, err error) {
	for n < len(b) {
		w.copied = append(w.copied, b[n])
		n++
		h := w.copied
		if len(h) < 2 {
			continue
		}
		size, extended := int(h[1]&0x7f), 0
		switch size {
		case 126:
			extended = 2
		case 127:
			extended = 8
		}
		keys := 0
		if w.masked = h[1]&0x80 != 0; w.masked {
			keys = len(w.mask)
		}
		if len(h) < 2+extended+keys {
			continue
		}
		switch extended {
		case 2:
			size = int(binary.BigEndian.Uint16(h[2:]))
		case 8:
			if long := binary.BigEndian.Uint64(h[2:]); long <= maxStream {
				size = int(long)
			} else {
				return 0, fmt.Errorf("%w: a WebSocket frame of %d bytes", errFrame, long)
			}
		}
		opcode := h[0] & 0xf
		if h[0]&0x70 != 0 || opcode > 2 && opcode < 8 {
			return 0, fmt.Errorf("%w: a WebSocket frame that begins with %#x", errFrame, h[0])
		}
		copy(w.mask[:], h[2+extended:])
		w.whole = false
		w.data, w.left, w.copied = opcode < 8, size, w.copied[:0]
		return n, nil
	}
	return n, nil
}

// payload classifies a prefix of b, the next bytes of a WebSocket frame's payload.
func (w *webSocket) payload(b []byte) (seg parser.Segment, err error) {
	seg.Len = len(b)
	switch {
	case w.data && w.masked:
		seg, err = w.unmask(b)
	case w.data:
		seg, err = w.frames.next(b, w.left)
	}
	w.left -= seg.Len
	return seg, err
}

// maskedAtOnce is the maximum of masked bytes that are read at a time.
const maskedAtOnce = 8 << 10

// unmask classifies a prefix of b, which is masked. A tensor that ends in a later WebSocket frame is opaque, since that
// frame has another mask.
func (w *webSocket) unmask(b []byte) (parser.Segment, error) {
	var room [maskedAtOnce]byte
	plain := room[:min(len(b), len(room))]
	w.mask.Copy(plain, b[:len(plain)])
	seg, err := w.frames.next(plain, w.left)
	if err != nil {
		return seg, err
	}
	if t := &seg.Tensor; t.Size > 0 {
		if t.Off == 0 {
			w.whole = t.Size <= w.left
		}
		if t.Mask = w.mask.From(-t.Off); !w.whole {
			seg.Tensor = tensor.Tensor{}
		}
	}
	w.mask = w.mask.From(seg.Len)
	return seg, nil
}

// Messages implements parser.Counter. It counts all SFM frames, and the ones with elements.
func (w *webSocket) Messages() (all, payloads int) { return w.frames.frames, w.frames.arrays }

// Recognized implements parser.Counter.
func (w *webSocket) Recognized() bool { return w.frames.recognized() }

// Held implements parser.Sized.
func (w *webSocket) Held() int { return w.frames.Held() + w.head.Held() + cap(w.copied) }

var (
	_ parser.Counter = (*webSocket)(nil)
	_ parser.Sized   = (*webSocket)(nil)
)
