package fastsgd

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// Values is the gradient value encoder alone (Algorithm 1), and its decoder: it codes the values of a sparse gradient
// without their keys. It is immutable and safe for concurrent use.
type Values struct {
	b      float64
	tau    int
	bits   uint      // of L-1
	scales sync.Pool // *scale
}

// NewValues returns the encoder of a base and a threshold as in Config, where 0 stands for the default, or an error
// that wraps codecs.ErrText.
func NewValues(b float64, tau int) (*Values, error) {
	if b == 0 {
		b = defaultB
	}
	if tau == 0 {
		tau = defaultTau
	}
	if !(b >= minB && b <= maxB) {
		return nil, fmt.Errorf("%w: fastsgd: b is %v; write a number from %v to %v", codecs.ErrText, b, minB, maxB)
	}
	if tau < 1 || tau > maxTau {
		return nil, fmt.Errorf("%w: fastsgd: tau is %d; write an integer from 1 to %d", codecs.ErrText, tau, maxTau)
	}
	power := 1.0
	for range tau {
		if power *= b; power > maxRange {
			return nil, fmt.Errorf("%w: fastsgd: %v^%d is over %g; write a smaller b or tau", codecs.ErrText, b, tau, maxRange)
		}
	}
	return &Values{b: b, tau: tau, bits: uint(bits.Len(uint(tau - 1))),
		scales: sync.Pool{New: func() any { return new(scale) }}}, nil
}

const sumLen = 8 // bytes

// MaxLen returns the maximum of bytes that Append adds for n values.
func (v *Values) MaxLen(n int) int { return sumLen + (n*int(v.bits+1)+7)/8 }

// Append appends the encoding of the values that are sent to dst, and their indices, which ascend, to kept; nothing if
// no value is sent. The encoding does not contain their number. On ErrUnsuited (a NaN or infinity) it returns both as
// they were.
func (v *Values) Append(dst []byte, kept []uint64, values []float32) ([]byte, []uint64, error) {
	s := v.scales.Get().(*scale)
	defer v.scales.Put(s)
	from := len(kept)
	sum, kept, err := v.filter(s, kept, values)
	if err != nil {
		return dst, kept, err
	}
	return v.appendCodes(dst, s, sum, values, kept[from:]), kept, nil
}

// filter sets s for the sum of values and appends the indices of the values to send to kept.
func (v *Values) filter(s *scale, kept []uint64, values []float32) (sum float64, _ []uint64, err error) {
	sum, ok := sumOf(values)
	if !ok {
		return 0, kept, fmt.Errorf("%w: fastsgd: a value is not finite", codecs.ErrUnsuited)
	}
	if sum == 0 {
		return 0, kept, nil
	}
	s.set(sum, v.b, v.tau)
	early := math.Float32bits(s.T[v.tau]) // τ_e of line 2; magnitudes have the order of their bits
	for i, x := range values {
		if math.Float32bits(x)&^signBit >= early {
			kept = append(kept, uint64(i))
		}
	}
	return sum, kept, nil
}

// appendCodes appends the sum and the codes of the values at kept.
func (v *Values) appendCodes(dst []byte, s *scale, sum float64, values []float32, kept []uint64) []byte {
	if len(kept) == 0 {
		return dst
	}
	at := len(dst)
	w := bitio.NewWriter(binary.LittleEndian.AppendUint64(dst, math.Float64bits(sum)))
	whole := false
	for _, i := range kept {
		x := math.Float32bits(values[i])
		L := s.level(math.Float32frombits(x &^ signBit))
		if L == 0 { // |x| is the sum: there is no other value
			whole, L = true, 1
		}
		w.Write(uint64(x>>31)<<v.bits|uint64(L-1), v.bits+1)
	}
	dst = w.Bytes()
	if whole {
		dst[at+sumLen-1] |= 1 << 7
	}
	return dst
}

// Decode sets values, as many as Append kept, from the encoding with which src begins, and returns the length of that
// encoding, or an error that wraps codecs.ErrCorrupt.
func (v *Values) Decode(values []float32, src []byte) (used int, err error) {
	if len(values) == 0 {
		return 0, nil
	}
	if len(src) < sumLen {
		return 0, fmt.Errorf("%w: fastsgd: it ends before a sum", codecs.ErrCorrupt)
	}
	sum := math.Float64frombits(binary.LittleEndian.Uint64(src))
	whole := math.Signbit(sum)
	if whole && len(values) > 1 {
		return 0, fmt.Errorf("%w: fastsgd: one of %d values is their whole sum", codecs.ErrCorrupt, len(values))
	}
	if sum = math.Abs(sum); !(sum > 0 && sum <= math.MaxFloat64) {
		return 0, fmt.Errorf("%w: fastsgd: the sum of magnitudes is %v", codecs.ErrCorrupt, sum)
	}
	s := v.scales.Get().(*scale)
	defer v.scales.Put(s)
	s.set(sum, v.b, v.tau)
	maxLevel := v.tau
	if whole {
		s.T[1], maxLevel = s.T[0], 1
	}
	r := bitio.NewReader(src[sumLen:])
	for i := range values {
		code := int(r.Read(v.bits + 1))
		L := code&(1<<v.bits-1) + 1
		if L > maxLevel || s.T[L] > math.MaxFloat32 {
			return 0, fmt.Errorf("%w: fastsgd: value %d of %d has level %d", codecs.ErrCorrupt, i, len(values), L)
		}
		values[i] = s.T[L]
		if code>>v.bits != 0 {
			values[i] = -values[i]
		}
	}
	used, ok := r.Close()
	if !ok {
		return 0, fmt.Errorf("%w: fastsgd: its codes do not end after %d values", codecs.ErrCorrupt, len(values))
	}
	return sumLen + used, nil
}
