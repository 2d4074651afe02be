package proxy

import (
	"errors"
	"github.com/gradproxy/gradproxy/proxy/frame"

	"github.com/gradproxy/gradproxy/tensor"
)

// Shared values: blocks of tensors that both proxies of a tunnel hold, so that the next value can be coded as its
// difference to the last, and one that several connections carry crosses the WAN once.
//
// A proxy puts values at its peer on a stream of its own that belongs to no app, the value stream: there nothing ever waits
// for an app that does not read, and the tunnel orders and replays it like any other. Connections then carry a Ref, at once
// and on any stream; the receiver of a Ref waits for the value while other connections go on. Each proxy of a pair opens a
// value stream to the other, and writes on the one that it has opened, where Declare and Block mean what they mean on a
// connection's stream, but that Blocks are not delivered: they are values, numbered from 1 in their order. Besides,
//
//	Room      = the bytes of values that the other may have put here; first of all
//	Forget    = numbers of values that no Ref will name any more
//	Evict     = slots of which no difference will come any more, so that their copies may go
//	Delivered = of connections, so many Refs more that were delivered, or that the connection has ended here
//
// and Want, Kept and Seen, which opposite.go explains. So the side that puts knows what the other holds, and it alone decides
// what is evicted: a value lives until another has taken its place in its slot, or its slot was the one used least recently when
// room was needed, and every Ref to it has been delivered. A connection is named by the number that its opening has given it.
//
// If a value stream is lost (the peer has a new incarnation) its values are, at both ends: the next are put whole. A Ref
// carries the number of its value stream, its epoch, so that none is taken for another's.

// SharedValues is the name under which hellos list, among codecs, that a proxy understands shared values.
const SharedValues = "reference"

// A valueKey names a block of a tensor, at both ends; key is the tensor's Base, which those that have the same values share.
type valueKey struct {
	job   string
	key   uint64
	off   int
	n     int
	dtype tensor.DType
}

func valueKeyOf(d *frame.Declaration) valueKey { return valueKey{d.Job, d.Key, d.Off, d.N, d.DType} }

func (k valueKey) size() int { return k.n * k.dtype.Size() }

// slotCost is what a slot's copy takes at each end, and what is known of it; a value of it takes its size.
func (k valueKey) slotCost() int64 { return int64(k.size()) + 512 }

// errValues is why a Ref is not delivered: the stream of its value is gone.
var errValues = errors.New("proxy: the shared values are lost: their stream has ended")
