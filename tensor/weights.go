package tensor

import (
	"hash/maphash"
	"math"
	"unsafe"
)

// These constants bound the likeness of a gradient and the weights with which its job began. They were measured on
// trainings of integration/testdata/record_sums.py: a rank's part of a gradient had a cosine with the first weights of
// at most 0.30, and the first average of weights one of at least 0.55.
const (
	maxWeights   = 64 << 10 // samples of a model's weights
	minCompared  = 256      // of them, for a comparison to tell anything
	maxCompared  = 1024     // of them, for one comparison
	alikeWeights = 0.4      // minimum of the cosine with the first weights from which on a block is no gradient
)

var seedOfSamples = maphash.MakeSeed()

// Weights hold samples of the float32 weights with which a job began: of each of as many equal parts one element. They
// are filled once by Feed, and then they do not change.
type Weights struct {
	elements int // of the model
	stride   int // elements of a part
	count    int // of parts
	samples  []float32
	hash     uint64  // of the samples, which no sender can choose
	from     int     // offset of the next byte, while they are filled
	bytes    [4]byte // of the next element to be sampled
}

// NewWeights returns Weights of a model of so many elements, at least 1, which are to be filled.
func NewWeights(elements int) *Weights {
	stride := (elements-1)/maxWeights + 1
	return &Weights{elements: elements, stride: stride, count: elements / stride}
}

// Feed takes the next bytes of the weights. Bytes after the last element are left alone.
func (w *Weights) Feed(b []byte) {
	for len(w.samples) < w.count {
		want := 4 * w.place(len(w.samples)) // of the first of four bytes
		if want >= w.from+len(b) {
			break
		}
		have := max(0, w.from-want)
		n := copy(w.bytes[have:], b[want+have-w.from:])
		if have+n < 4 {
			break
		}
		var v [1]float32
		ToFloat32(v[:], w.bytes[:], Float32)
		w.samples = append(w.samples, v[0])
		w.hash = maphash.Comparable(seedOfSamples, [2]uint64{w.hash, uint64(math.Float32bits(v[0]))})
	}
	w.from += len(b)
}

// Complete reports whether all samples have been taken.
func (w *Weights) Complete() bool { return len(w.samples) == w.count }

// Held returns about how many bytes w takes; a nil Weights takes none.
func (w *Weights) Held() int {
	if w == nil {
		return 0
	}
	return int(unsafe.Sizeof(*w)) + cap(w.samples)*4
}

// Elements returns the number of elements of the model.
func (w *Weights) Elements() int { return w.elements }

// Equal reports whether both are complete and have the same samples of models of one size.
func (w *Weights) Equal(o *Weights) bool {
	return w == o || w.elements == o.elements && w.Complete() && o.Complete() && w.hash == o.hash
}

// place returns the element that is the sample of a part. A stride alone could meet one column of a matrix again and
// again.
func (w *Weights) place(part int) int {
	return part*w.stride + int((uint32(part)*2654435769)>>8)%w.stride
}

// alike reports whether a block is so much like the weights from an element on that it is no gradient.
func (w *Weights) alike(d DType, block []byte, from int) bool {
	size := d.Size()
	first, end := (from+w.stride-1)/w.stride, min((from+len(block)/size)/w.stride, len(w.samples))
	if end-first < minCompared {
		return false
	}
	step := (end-first-1)/maxCompared + 1
	var elements [maxCompared * 8]byte
	var values [maxCompared]float32
	n := 0
	for part := first; part < end; part += step {
		copy(elements[n*size:(n+1)*size], block[(w.place(part)-from)*size:])
		n++
	}
	ToFloat32(values[:n], elements[:n*size], d)
	var product, x, y float64
	for i, v := range values[:n] {
		a, b := float64(v), float64(w.samples[first+i*step])
		product, x, y = product+a*b, x+a*a, y+b*b
	}
	return x > 0 && y > 0 && product >= alikeWeights*math.Sqrt(x)*math.Sqrt(y)
}

// A Placement says which weights a message of a sum would have if the sum were the model's weights, in their order.
type Placement struct {
	Weights []*Weights // complete, of models of one size: one of them may be right
	Offsets []int      // elements of the model before the message's first: one of them is right
}

// Judge returns the verdict on a block of the message, for which the content check has said v. The block, which begins
// off bytes after the message's first, is no gradient if it is like the weights, and earlier values were not: they have
// earned trust.
func (p *Placement) Judge(v Verdict, d DType, block []byte, off int) Verdict {
	if (v == Fits || v == Outlier || v == Near) && p.Alike(d, block, off) {
		return FirstWeights
	}
	return v
}

// Alike reports whether a block of the message, which begins off bytes after the message's first, is so much like the
// weights that the sum is no gradient. The type d must be a float type, and off and the block's length whole elements.
// A nil Placement is like nothing.
func (p *Placement) Alike(d DType, block []byte, off int) bool {
	if p == nil || !d.Float() {
		return false
	}
	for _, at := range p.Offsets {
		for _, w := range p.Weights {
			if w.alike(d, block, at+off/d.Size()) {
				return true
			}
		}
	}
	return false
}
