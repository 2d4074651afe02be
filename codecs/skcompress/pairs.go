package skcompress

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

// Pairs compresses the pairs of a sparse gradient, keys and values together, as the paper's messages are. All pairs are
// restored: none is added, none is lost, and a value of 0 stays 0. It is safe for concurrent use.
//
// On the wire pairs are as the block of their values, but that keys stand for positions: lists has the keys of all values,
// those that are 0 first; in the other forms keys.Adaptive's encoding of all keys follows the means, or the form if all values
// are 0.
type Pairs struct{ method }

// NewPairs returns the method of c, whose Block has no meaning here, or an error that wraps codecs.ErrText if a parameter is out
// of its bounds.
func NewPairs(c Config) (*Pairs, error) {
	m, err := newMethod(c)
	if err != nil {
		return nil, err
	}
	return &Pairs{m}, nil
}

// Append appends the encoding of as many values as keys, which ascend strictly, to dst. It neither modifies nor retains them. If
// a value is a NaN or an infinity, or keys do not ascend, it returns dst as it was and an error that wraps codecs.ErrUnsuited.
func (p *Pairs) Append(dst []byte, own []uint64, values []float32) ([]byte, error) {
	if len(own) != len(values) {
		panic(fmt.Sprintf("skcompress: %d keys for %d values", len(own), len(values)))
	}
	found := survey(values)
	if max(found[negative].max, found[positive].max) > math.MaxFloat32 {
		return dst, fmt.Errorf("%w: skcompress: the values are not finite", codecs.ErrUnsuited)
	}
	if !keys.Ascending(own) {
		return dst, fmt.Errorf("%w: skcompress: the keys do not ascend", codecs.ErrUnsuited)
	}
	if len(own) == 0 {
		return dst, nil
	}
	w := p.pool.Get().(*work)
	defer p.pool.Put(w)
	return p.appendBlock(dst, w, found, own, values), nil
}

// Decode sets keys, which then ascend strictly, and values, of as many, from src, or returns an error that wraps
// codecs.ErrCorrupt. Any src is safe.
func (p *Pairs) Decode(own []uint64, values []float32, src []byte) error {
	if len(own) != len(values) {
		panic(fmt.Sprintf("skcompress: %d keys for %d values", len(own), len(values)))
	}
	used := 0
	if len(own) > 0 {
		w := p.pool.Get().(*work)
		defer p.pool.Put(w)
		var err error
		if used, err = p.decodeBlock(w, own, values, src); err != nil {
			return err
		}
	}
	if used < len(src) {
		return corrupt("%d bytes follow its %d pairs", len(src)-used, len(own))
	}
	return nil
}
