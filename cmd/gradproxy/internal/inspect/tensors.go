package inspect

import (
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// tensors holds the last values of tensors, as the proxies do.
type tensors struct {
	spare   int // bytes of memory for more last values
	last    map[blockName]*block
	sums    residual.Sums
	doubted bool // a sum of the job was found to be no gradient
}

type blockName struct {
	key uint64
	off int
}

// A block is the memory of one block of a tensor.
type block struct {
	data    []byte // its last value; nil: none is kept
	trust   tensor.Trust
	history *tensor.History
}

// judge returns the role that a block of a tensor would be coded by.
func (ts *tensors) judge(t tensor.Tensor, off int, data []byte) tensor.Role {
	role := t.Role
	if !t.Proof.NeedsContent() {
		return role
	}
	if t.Key != 0 && role != tensor.Exact && role != tensor.State {
		b := ts.block(blockName{t.Key, off}, len(data))
		if b == nil || !ts.passes(b, t, data) {
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

// passes reports whether data passes the content check as the next value of b, which is of t. It ends the word of the user who says that all sums
// are gradients where one is none, as a proxy does.
func (ts *tensors) passes(b *block, t tensor.Tensor, data []byte) bool {
	kept := make([]byte, tensor.KeptSize(t.DType, len(b.data)))
	tensor.Keep(t.DType, kept, b.data)
	if b.history == nil && t.DType.Valid() {
		b.history = tensor.NewHistory(len(data) / t.DType.Size())
	}
	history := b.history
	if t.Role == tensor.Gradient && t.Proof == tensor.ByWire {
		b.trust.Presume()
		history = nil
	}
	v := b.trust.Judge(t.DType, data, kept, history)
	ts.doubted = ts.doubted || v.Foreign()
	return v == tensor.Fits && !ts.doubted
}

// message samples a message of a sum. data is the whole message.
func (ts *tensors) message(t tensor.Tensor, data []byte) {
	if t.Part == 0 || t.Whole || len(data) != t.Size || !t.Proof.NeedsContent() {
		return
	}
	if x, ok := tensor.Contribute(t.DType, data); ok {
		ts.sums.Put(new(residual.Job), t, &x)
	}
}

// result takes bytes of t, and compares the result of a sum with the message before.
func (ts *tensors) result(t tensor.Tensor, b []byte) {
	if t.Part == 0 || !t.Whole {
		return
	}
	_, job, v := ts.sums.See(t, b)
	ts.doubted = ts.doubted || job != nil && v.Foreign()
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
