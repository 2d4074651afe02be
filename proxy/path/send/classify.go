package send

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// A classifier asks the parser of the app's bytes which of them are whose, and gives tensors and opaque bytes to the
// cutter in stream order.
type classifier struct {
	*direction
	parser parser.Parser
	cut    *cutter
	choose *chooser
	seen   tensor.Tensor // that conn.Shadow is shown: a variable of its own would be allocated each time
	ended  error         // why the parser gave up; nil: it has not
}

// take classifies bytes that were read into from, which may be nil, and hands them on. buf begins with frame.MaxHeader
// bytes of room.
func (c *classifier) take(buf []byte, from *memory.Buffer) error {
	if len(buf) == frame.MaxHeader {
		return nil
	}
	seg, err := c.ask(buf[frame.MaxHeader:])
	return c.classified(buf, from, seg, err)
}

// classified is take, once the parser has been asked for the first time.
func (c *classifier) classified(buf []byte, from *memory.Buffer, seg parser.Segment, err error) error {
	opaque := frame.MaxHeader // where the opaque bytes begin that have not been handed on
	for at := frame.MaxHeader; ; {
		if err != nil {
			if err := c.gaveUp(err); err != nil {
				return err
			}
			break
		}
		end := at + seg.Len
		if seg.Tensor.Size > 0 {
			if err := c.cut.opaque(buf[opaque-frame.MaxHeader : at]); err != nil {
				return err
			}
			if err := c.cut.tensor(seg.Tensor, buf[at-frame.MaxHeader:end], from); err != nil {
				return err
			}
			opaque = end
		} else {
			c.cut.direct.other()
		}
		if at = end; at == len(buf) {
			break
		}
		seg, err = c.ask(buf[at:])
	}
	return c.cut.opaque(buf[opaque-frame.MaxHeader:])
}

// direct takes bytes that were read to where a block wants its next ones. spare has room for them behind
// frame.MaxHeader bytes: if they are others, that block may be gone once they are dealt with.
func (c *classifier) direct(b []byte, spare memory.Buffer) error {
	seg, err := c.ask(b)
	if err != nil || !c.cut.direct.isNext(seg.Tensor) {
		defer c.alloc.Put(spare)
		return c.classified(append(spare.B[:frame.MaxHeader], b...), nil, seg, err)
	}
	var others []byte
	if seg.Len < len(b) {
		defer c.alloc.Put(spare)
		others = append(spare.B[:frame.MaxHeader], b[seg.Len:]...)
	} else {
		c.alloc.Put(spare) // before the block waits for the tunnel
	}
	if err := c.cut.inPlace(seg.Tensor, seg.Len); err != nil || others == nil {
		return err
	}
	return c.take(others, nil)
}

// ask asks the parser; after its first error everything is opaque.
func (c *classifier) ask(b []byte) (parser.Segment, error) {
	if c.ended != nil {
		return parser.Segment{Len: len(b)}, nil
	}
	seg, err := c.parser.Next(b)
	if err == nil {
		m := seg.Tensor.Mask.From(seg.Tensor.Off)
		if seg.Tensor.Size > 0 && m != (tensor.Mask{}) {
			m.Apply(b[:seg.Len]) // they are masked again for the cutter, which may have them travel as they are
			defer m.Apply(b[:seg.Len])
		}
		c.conn.See(seg.Tensor, b[:seg.Len])
		if seg.Tensor.Size > 0 && c.conn.Shadow != nil {
			c.seen = seg.Tensor
			c.seen.Mask = tensor.Mask{}
			c.conn.Shadow.See(c.flow, &c.seen, b[:seg.Len])
		}
	}
	return seg, err
}

// gaveUp takes note of the parser's error. The error that it returns ends the connection.
func (c *classifier) gaveUp(err error) error {
	c.ended = err
	c.cut.direct = direct{}
	c.conn.Env.Metrics.GaveUp(c.flow.Protocol)
	if c.forgets() {
		c.choose.past.forget(true)
	}
	if !errors.Is(err, parser.ErrForeign) {
		c.conn.Log.Warn("stream is no longer understood and travels verbatim", "direction", c.flow.Direction, "err", err)
	}
	if errors.Is(err, parser.ErrReset) && c.choose.lossy {
		return fmt.Errorf("proxy: loss was used on a false verdict: %w", err)
	}
	return c.cut.fallBack(false) // the rest of a block that waits will never be told from other bytes
}

// forgets reports whether the parser's error takes the state of its tensors along, as a false verdict does.
func (c *classifier) forgets() bool {
	return errors.Is(c.ended, parser.ErrForget) || errors.Is(c.ended, parser.ErrReset)
}
