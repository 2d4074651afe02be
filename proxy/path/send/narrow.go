package send

import (
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path"
)

// A narrower keeps few bytes of an app ahead of a slow link. To the app they count as sent once a kernel has taken
// them, and some apps wait only so long for an answer from then on: Flower's nodes 30 s, and then they send everything
// again. So ahead of a link that is slow the receive buffer of the app's socket is small, which keeps the app's own
// send buffer small as well. It is small from the first byte on, since a send buffer that has grown stays large, and
// grows as the kernel likes once the link is known to be faster, or has let so many bytes through that a slow one would
// be known. It never becomes small again: the kernel would drop bytes that are under way to the larger buffer.
type narrower struct {
	on    bool
	bytes int // that have come since it is on
}

const (
	slowLink   = 2 << 20 // bytes per second
	fastLink   = 2 * slowLink
	manyNarrow = 2 << 20 // bytes
)

// want takes note of n bytes that have come, and reports whether the buffer should be small now. rate is the link's, in
// bytes per second; 0: not known.
func (w *narrower) want(n int, rate float64) bool {
	w.bytes += n
	switch {
	case rate > 0 && rate < slowLink:
		return w.on
	case rate >= fastLink, rate == 0 && w.bytes > manyNarrow:
		return false
	}
	return w.on
}

// begin sets the receive buffer of an app's socket before anything has been read from it. It may also be one that
// another Sender, perhaps of another process, has read from: its buffer stays as it is.
func (w *narrower) begin(from *app.Reader, rate float64) {
	if from != nil {
		w.on = from.Narrow(rate < fastLink)
	}
}

// Prepare sets the receive buffer of the app's socket as Run will do, for an app whose bytes nobody reads yet.
func Prepare(c *path.Conn) {
	if r, err := app.NewReader(c.App, nil, nil); err == nil {
		_, rate := c.Stream.Path()
		new(narrower).begin(r, rate)
	}
}

// came sets the receive buffer of the app's socket once n more bytes have come. A system that cannot is left as it is.
func (w *narrower) came(from *app.Reader, n int, rate float64) {
	if !w.on {
		return
	}
	if w.on = w.want(n, rate); !w.on {
		from.Widen()
	}
}
