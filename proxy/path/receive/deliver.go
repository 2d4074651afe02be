package receive

import (
	"fmt"
	"net"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/tensor"
)

// A deliverer shows bytes in stream order to the learner, and writes them to the app.
type deliverer struct {
	conn    *path.Conn
	app     appWriter
	learner parser.Parser // nil once it gave up
	writes  atomic.Uint64 // begins and ends of writes to the app: odd during one
}

// An appWriter is the app's socket; *app.Conn is one.
type appWriter interface {
	Write(p []byte) (int, error)
	Writev(parts net.Buffers) (int64, error) // uses parts up
}

// runs delivers runs of bytes.
func (d *deliverer) runs(runs ...[]byte) error {
	if len(runs) == 1 {
		return d.run(runs[0])
	}
	for _, b := range runs {
		d.learn(b)
	}
	d.writes.Add(1)
	n, err := d.app.Writev(runs)
	d.writes.Add(1)
	return d.delivered(n, err)
}

// run delivers one run of bytes.
func (d *deliverer) run(b []byte) error {
	d.learn(b)
	d.writes.Add(1)
	n, err := d.app.Write(b)
	d.writes.Add(1)
	return d.delivered(int64(n), err)
}

// delivered takes note of a write of n bytes to the app.
func (d *deliverer) delivered(n int64, err error) error {
	if err != nil {
		d.conn.WriteFailed()
	}
	d.conn.Env.Metrics.Delivered(d.conn.Peer, d.conn.Job, int(n))
	if err != nil {
		return fmt.Errorf("%w: %w", path.ErrAppGone, err)
	}
	return nil
}

// alone delivers a block that stands by itself, if it did decode.
func (d *deliverer) alone(b *block) error {
	if b.err != nil {
		return b.err
	}
	b.mask.Apply(b.data)
	return d.run(b.data)
}

// gathered delivers the runs of a Gather's body, once all its blocks are there. If one of them did not decode, nothing
// is delivered.
func (d *deliverer) gathered(body []byte, blocks []*block) error {
	elements := make([][]byte, len(blocks))
	for i, b := range blocks {
		if b.err != nil {
			return b.err
		}
		elements[i] = b.data
		if b.parts {
			if err := d.collect(b); err != nil {
				return err
			}
		}
		if b.ref.Size != 0 {
			data, release, err := d.await(b.ref)
			if err != nil {
				return err
			}
			defer release()
			elements[i] = data
			if b.mask != (tensor.Mask{}) { // others have the value too
				b.data = d.conn.Env.Buffers.Get(len(data))
				copy(b.data, data)
				elements[i] = b.data
			}
		}
		b.mask.Apply(b.data)
	}
	return frame.DeliverRuns(body, elements, d.runs)
}

// collect sets the elements of a block that is parts of values and other bytes.
func (d *deliverer) collect(b *block) error {
	at := 0
	return d.each(b.encoded, func(bytes []byte) error {
		at += copy(b.data[at:], bytes)
		return nil
	})
}

// each gives the bytes of the parts in the body of a Parts frame to f, in their order and once they are there.
func (d *deliverer) each(body []byte, f func([]byte) error) error {
	_, err := frame.EachPart(body, func(p *frame.Part) error {
		if p.Value.ID == 0 {
			return f(p.Literal)
		}
		data, release, err := d.await(p.Value)
		if err != nil {
			return err
		}
		defer release()
		part := data[p.From : p.From+p.N]
		if frame.PartHash(part) != p.Hash {
			return fmt.Errorf("%w: value %d of stream %d does not have the bytes that a part names", frame.ErrFrame, p.Value.ID, p.Value.Epoch)
		}
		return f(part)
	})
	return err
}

// value delivers a shared value once it is there.
func (d *deliverer) value(named frame.ValueRef, mask tensor.Mask) error {
	data, release, err := d.await(named)
	if err != nil {
		return err
	}
	defer release()
	return d.masked(data, mask)
}

// maskedAtOnce is how many bytes are masked at a time, where others have them too.
const maskedAtOnce = 8 << 10

// masked delivers bytes as mask makes them, and leaves them as they are.
func (d *deliverer) masked(b []byte, mask tensor.Mask) error {
	if mask == (tensor.Mask{}) {
		return d.run(b)
	}
	room := d.conn.Env.Buffers.Get(min(len(b), maskedAtOnce))
	defer d.conn.Env.Buffers.Put(room)
	for len(b) > 0 {
		n := min(len(b), len(room)) // whole masks, but for the last one
		mask.Copy(room[:n], b[:n])
		if err := d.run(room[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (d *deliverer) await(named frame.ValueRef) (data []byte, release func(), err error) {
	if d.conn.Values == nil {
		return nil, nil, fmt.Errorf("%w: ref to a value, and none are shared", frame.ErrFrame)
	}
	return d.conn.Values.Await(d.conn.Tag, named, d.conn.Gone)
}

func (d *deliverer) learn(b []byte) {
	for d.learner != nil && len(b) > 0 {
		seg, err := d.learner.Next(b)
		if err != nil {
			d.learner = nil
			return
		}
		d.conn.See(seg.Tensor, b[:seg.Len])
		b = b[seg.Len:]
	}
}
