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

// A blockName names a block of a tensor in one direction of a connection: one that goes to several workers is compared
// with itself.
type blockName struct {
	direction any
	key       uint64
	off       int
}

// A block is the memory of one block of a tensor.
type block struct {
	data    []byte // its last value; nil: none is kept
	trust   tensor.Trust
	history *tensor.History
	fitted  bool // a value has passed the content check
	lost    bool // a later one was something else, and none has passed since
}

// judge returns the role of a block of a tensor that goes in a direction of a connection: the one that messages and the
// user give it, or Unknown if its content refutes that, or if nothing was there to compare with the user's word. Trust
// that is not earned yet refutes nothing, though a proxy codes such a block exactly: a short capture ends before trust
// is earned.
func (ts *tensors) judge(direction any, t tensor.Tensor, off int, data []byte) tensor.Role {
	if t.Role == tensor.Exact || t.Role == tensor.State || !t.Proof.NeedsContent() {
		return t.Role
	}
	if t.Key == 0 {
		return tensor.Unknown // its values cannot be told from other tensors' values
	}
	b := ts.block(blockName{direction, t.Key, off}, len(data))
	if b == nil {
		return tensor.Unknown
	}
	supported := ts.supports(b, t, off, data)
	b.data = append(b.data[:0], data...)
	if t.Role == tensor.Aggregate && t.Proof == tensor.ByWire {
		return t.Role // the first answers of a server are initial weights
	}
	if !supported || ts.doubted {
		return tensor.Unknown
	}
	return t.Role
}

// supports reports whether data, compared with the last values of b, a block of t at off, supports the role. Where a
// sum is no gradient, supports stops believing the user that all sums are gradients, as a proxy does.
func (ts *tensors) supports(b *block, t tensor.Tensor, off int, data []byte) bool {
	kept := make([]byte, tensor.KeptSize(t.DType, len(b.data)))
	tensor.Keep(t.DType, kept, b.data)
	plausible, compared := tensor.Plausible(t.DType, data, kept)
	if b.history == nil && t.DType.Valid() {
		b.history = tensor.NewHistory(len(data) / t.DType.Size())
	}
	history := b.history
	if t.Role == tensor.Gradient && t.Proof == tensor.ByWire {
		b.trust.Presume()
		history = nil
	}
	v := t.Placed.Judge(b.trust.Judge(t.DType, data, kept, history), t.DType, data, off)
	if x, ok := contribution(&t, data); ok {
		v = ts.sums.Judge(v, t.Key, &x)
	}
	switch {
	case v == tensor.Fits:
		b.fitted, b.lost = true, false
		return true
	case v == tensor.Outlier, v == tensor.Predicted:
		return false
	case v != tensor.Unproved, compared && !plausible:
		b.lost = b.lost || b.fitted
		ts.doubted = ts.doubted || v.Foreign()
		return false
	}
	return !b.lost && (compared || t.Proof != tensor.ByUser)
}

// message samples a message of a sum.
func (ts *tensors) message(t tensor.Tensor, data []byte) {
	if x, ok := contribution(&t, data); ok {
		ts.sums.Put(new(residual.Job), t, &x)
	}
}

// contribution returns a sample of a whole message of a sum; ok is false if data is something else.
func contribution(t *tensor.Tensor, data []byte) (x tensor.Contribution, ok bool) {
	if t.Part == 0 || t.Whole || len(data) != t.Size || !t.Proof.NeedsContent() {
		return x, false
	}
	return tensor.Contribute(t.DType, data)
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
