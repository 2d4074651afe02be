package inspect

import "github.com/gradproxy/gradproxy/tensor"

// tensors holds the last values of tensors, as the proxies do.
type tensors struct {
	spare int // bytes of memory for more last values
	last  map[blockName]*block
}

type blockName struct {
	key uint64
	off int
}

// A block is the memory of one block of a tensor.
type block struct {
	data  []byte // its last value; nil: none is kept
	dtype tensor.DType
	trust tensor.Trust
}

// judge returns the role that a block of a tensor would be coded by. proved: the role needs no content to support it.
func (ts *tensors) judge(t tensor.Tensor, off int, data []byte, proved bool) tensor.Role {
	role := t.Role
	if proved {
		return role
	}
	if t.Key != 0 && role != tensor.Exact && role != tensor.State {
		b := ts.block(blockName{t.Key, off}, len(data))
		if b == nil || !b.passes(t.DType, data) {
			role = tensor.Unknown
		}
		if b != nil {
			b.data = append(b.data[:0], data...)
		}
	} else if role == tensor.Gradient || role == tensor.Aggregate {
		role = tensor.Unknown // nothing to compare with
	}
	return role
}

// passes reports whether data passes the content check as the next value of b.
func (b *block) passes(d tensor.DType, data []byte) bool {
	kept := make([]byte, tensor.KeptSize(d, len(b.data)))
	tensor.Keep(d, kept, b.data)
	return b.trust.Check(d, data, kept)
}

// block returns the block of that name, nil if there is no memory for it.
func (ts *tensors) block(name blockName, size int) *block {
	b := ts.last[name]
	if b == nil {
		if ts.spare < size {
			return nil
		}
		b = &block{}
		ts.last[name] = b
		ts.spare -= size
	}
	return b
}
