package cache

import (
	"encoding/binary"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/coder"
)

// maxReverse is how much longer the form of such a Block is than that of others.
const maxReverse = 2 * binary.MaxVarintLen64

// keepValues is how many values of a slot may be under way to a peer that codes against them.
const keepValues = 3

// keepCost is the memory that earlier values of a slot take.
func (k blockKey) keepCost() int64 { return keepValues * int64(k.size()) }

// A copyOfSlot is the store's copy of a slot's block. store.mu guards come, wanted and kept.
type copyOfSlot struct {
	blockKey
	id    uint32
	epoch uint64 // of the value stream
	turns coder.Turns
	copy  *reference.Copy
	come  uint64 // values

	wanted bool // the peer is asked to keep values
	kept   bool // it does
}

// A reverseEncoder codes a slot's values, as it was declared last, against the peer's.
type reverseEncoder struct {
	enc  codecs.Encoder
	from *copyOfSlot
}

// A reverseDecoder reverses a reverseEncoder.
type reverseDecoder struct {
	dec  codecs.Decoder
	from *reference.Copy
}
