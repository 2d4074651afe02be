package send

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// A classifier asks the parser which of the app's bytes belong to which tensor, and gives tensors and opaque bytes to
// the cutter in stream order.
type classifier struct {
	*direction
	parser parser.Parser
	cut    *cutter
	choose *chooser
	seen   tensor.Tensor // the tensor that conn.Shadow is shown; a local variable would be allocated each time
	ended  error         // the error with which the parser gave up; nil: it has not
}

// take classifies the bytes of buf and hands them on. buf begins with frame.MaxHeader bytes of room. from is the buffer
// that was read into, or nil.
func (c *classifier) take(buf []byte, from *memory.Buffer) error {
	if len(buf) == frame.MaxHeader {
		return nil
	}
	seg, err := c.ask(buf[frame.MaxHeader:])
	return c.classified(buf, from, seg, err)
}

// classified does the rest of take, once the parser has answered seg and err for the first bytes of buf.
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

// direct takes bytes that a direct read has put into the block that is likely to want them. spare has room for the
// bytes behind frame.MaxHeader bytes: if they belong to something else they are moved there, since the block may be
// gone by the time that they are handled.
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

// ask asks the parser about b. After the parser's first error all bytes are opaque.
func (c *classifier) ask(b []byte) (parser.Segment, error) {
	if c.ended != nil {
		return parser.Segment{Len: len(b)}, nil
	}
	seg, err := c.parser.Next(b)
	if err == nil {
		m := seg.Tensor.Mask.From(seg.Tensor.Off)
		if seg.Tensor.Size > 0 && m != (tensor.Mask{}) {
			m.Apply(b[:seg.Len]) // the cutter gets them masked again, since they may travel as they are
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

// gaveUp notes the parser's error. If it returns an error, the connection must end.
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

// forgets reports whether the tensors lose their state with the parser's error, as they do after a false verdict.
func (c *classifier) forgets() bool {
	return errors.Is(c.ended, parser.ErrForget) || errors.Is(c.ended, parser.ErrReset)
}
