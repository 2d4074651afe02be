package codectest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// feedbackBreaches are ways for a Fused encoder to differ from the plain one.
var feedbackBreaches = []string{"none", "forgets the residual", "encodes without it", "leaves another residual", "takes every type for float32",
	"touches the residual though unsuited", "takes what is unsuited", "misses the last value"}

const feedbackVariable = "CODECTEST_FEEDBACK_BREACH"

// TestFused is run by TestFeedbackBreachesAreNoticed, in a process of its own for each breach.
func TestFused(t *testing.T) {
	how := os.Getenv(feedbackVariable)
	if how == "" {
		t.Skip("run by TestFeedbackBreachesAreNoticed")
	}
	t.Run("fakes", func(t *testing.T) { Run(t, codecs.Values(&halving{breach(how)}), nil) })
}

// The suite passes a method with right fused feedback and fails each method with a breach in it, in the subtest
// feedback.
func TestFeedbackBreachesAreNoticed(t *testing.T) {
	for _, how := range feedbackBreaches {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFused$", "-test.v")
			c.Env = append(os.Environ(), feedbackVariable+"="+how)
			out, err := c.CombinedOutput()
			switch {
			case how == "none" && err != nil:
				t.Errorf("nothing is broken, but: %v\n%s", err, tail(out))
			case how == "none":
			case err == nil:
				t.Error("not noticed")
			case !bytes.Contains(out, []byte("/feedback (")):
				t.Errorf("not noticed by feedback:\n%s", tail(out))
			}
		})
	}
}

// halving is a method that keeps sign, exponent and two bits of the mantissa, and delivers a little more, which no
// 16-bit type has.
type halving struct{ breach }

func (h *halving) String() string                                { return "halving" }
func (h *halving) MaxEncodedLen(n int) int                       { return 2 * n }
func (h *halving) Block(size int) int                            { return size }
func (h *halving) Traits() codecs.Traits                         { return codecs.Traits{} }
func (h *halving) NewEncoder(n int) (codecs.ValueEncoder, error) { return &halver{h.breach, n}, nil }
func (h *halving) NewDecoder(n int) (codecs.ValueDecoder, error) { return &halver{h.breach, n}, nil }
func keep(x float32) uint16                                      { return uint16(math.Float32bits(x)>>16) &^ 31 }
func kept(b uint16) float32                                      { return math.Float32frombits(uint32(b)<<16) * 1.001 }

type halver struct {
	breach
	n int
}

func (h *halver) Append(dst []byte, src []float32) ([]byte, error) {
	for _, x := range src {
		if !(math.Abs(float64(x)) <= math.MaxFloat32) {
			return dst, codecs.ErrUnsuited
		}
	}
	for _, x := range src {
		dst = binary.LittleEndian.AppendUint16(dst, keep(x))
	}
	return dst, nil
}

func (h *halver) Decode(dst []float32, src []byte) error {
	if len(src) != 2*h.n {
		return fmt.Errorf("%w: %d bytes", codecs.ErrCorrupt, len(src))
	}
	for i := range dst {
		dst[i] = kept(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return nil
}

func (h *halver) AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error) {
	sum := make([]float32, len(src))
	for i, x := range src {
		sum[i] = x + residual[i]
		if h.breach == "touches the residual though unsuited" {
			residual[i] = 0
		}
	}
	from := sum
	if h.breach == "encodes without it" {
		from = src
	}
	out, err := h.Append(dst, from)
	if err != nil && h.breach != "takes what is unsuited" {
		return dst, err
	}
	if err != nil {
		out = append(dst, make([]byte, 2*len(src))...)
	}
	if h.breach == "takes every type for float32" {
		d = tensor.Float32
	}
	for i := range residual {
		y := []float32{kept(keep(sum[i]))}
		tensor.Round(y, d)
		switch {
		case h.breach == "forgets the residual":
			residual[i] = 0
		case h.breach == "leaves another residual":
			residual[i] = src[i] - y[0]
		case h.breach == "misses the last value" && i == len(residual)-1:
		default:
			residual[i] = sum[i] - y[0]
		}
	}
	return out, nil
}
