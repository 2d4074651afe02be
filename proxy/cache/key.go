package cache

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

// A blockKey names a block of a tensor, at both ends; key is the tensor's Base, which tensors that have the same values
// share.
type blockKey struct {
	job   string
	key   uint64
	off   int
	n     int
	dtype tensor.DType
}

func keyOf(d *frame.Declaration) blockKey { return blockKey{d.Job, d.Key, d.Off, d.N, d.DType} }

// modelOf names the block that goes the other way and predicts d's.
func modelOf(d *frame.Declaration) blockKey {
	k := keyOf(d)
	k.key = d.Base
	return k
}

func (k blockKey) size() int { return k.n * k.dtype.Size() }

// slotCost is the memory that a slot with its copy takes at each end; a value of it takes its size.
func (k blockKey) slotCost() int64 { return int64(k.size()) + 512 }

// A predicted is a tensor, by its Base, whose values the peer codes against.
type predicted struct {
	job string
	key uint64
}
