package sparse

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Picker is a SumCoder of a method that sends the values which Pick chooses by their magnitudes, in one of two wire
// forms.
type Picker struct {
	Text string // the codec's

	// Pick sets p's keys, ascending, and p's values to the values of v to send. If v has a residual, Pick must leave it
	// as the functions of package magnitude do. step counts the encodings before this one.
	Pick func(p *Picks, v magnitude.Values, step uint64)

	Values tensor.DType // the element type in which values travel
	Mapped bool         // positions travel as a bitmap (AppendMapped), not as a list (AppendPairs)
}

func (c Picker) String() string { return c.Text }

// Traits implements Coder. Picks are the same for the same values, and not amplified.
func (c Picker) Traits() codecs.Traits { return codecs.Traits{} }

// AppendBlock implements Coder.
func (c Picker) AppendBlock(dst []byte, x []float32, step uint64, p *Picks) ([]byte, error) {
	return c.AppendValues(dst, magnitude.Values{X: x}, step, p)
}

// AppendValues implements SumCoder.
func (c Picker) AppendValues(dst []byte, v magnitude.Values, step uint64, p *Picks) ([]byte, error) {
	c.Pick(p, v, step)
	if c.Mapped {
		return AppendMapped(dst, v.Len(), p, c.Values)
	}
	return AppendPairs(dst, p, c.Values)
}

// DecodeBlock implements Coder.
func (c Picker) DecodeBlock(x []float32, src []byte, p *Picks) ([]byte, error) {
	if c.Mapped {
		return DecodeMapped(x, src, c.Values, p)
	}
	return DecodePairs(x, src, c.Values, p)
}
