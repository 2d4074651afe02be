package inspect

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// tensors holds the last values of tensors, as the proxies do, and tries codecs on the new ones.
type tensors struct {
	spare   int // bytes of memory for more last values
	last    map[blockName]*block
	codec   codecs.Codec
	encoded []byte
}

type blockName struct {
	key uint64
	off int
}

// A block is what is known of one block of a tensor.
type block struct {
	data  []byte // its last value; nil: none is kept
	dtype tensor.DType
	trust tensor.Trust
}

// judge returns the role that a block of a tensor would be coded by, and the bytes that lossless coding saves. proved: the
// role needs no content to support it.
func (ts *tensors) judge(t tensor.Tensor, off int, data []byte, proved bool) (tensor.Role, int) {
	role := t.Role
	if proved {
		return role, ts.saving(t.DType, data)
	}
	if t.Key != 0 && role != tensor.Exact && role != tensor.State {
		b := ts.block(blockName{t.Key, off}, len(data))
		if lossy := role == tensor.Gradient || role == tensor.Aggregate; lossy {
			if b == nil || !b.trust.Check(t.DType, data, b.data) {
				role = tensor.Unknown
			}
		}
		if b != nil {
			b.data = append(b.data[:0], data...)
		}
	} else if role == tensor.Gradient || role == tensor.Aggregate {
		role = tensor.Unknown // nothing to compare with
	}
	return role, ts.saving(t.DType, data)
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

// saving returns how many bytes shorter the codec makes data. What it does not shrink travels as it is.
func (ts *tensors) saving(d tensor.DType, data []byte) int {
	if len(data)%d.Size() != 0 {
		d = tensor.NoDType
	}
	saved := 0
	for len(data) > 0 {
		n := min(len(data), ts.codec.Block(len(data)))
		if n -= n % d.Size(); n <= 0 {
			break
		}
		if e, err := ts.codec.NewEncoder(d, n/d.Size()); err == nil {
			if out, err := e.Append(ts.encoded[:0], data[:n]); err == nil {
				saved += max(0, n-len(out))
				ts.encoded = out
			}
		}
		data = data[n:]
	}
	return saved
}
