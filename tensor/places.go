package tensor

// sampleLen is the number of elements of a sample.
const sampleLen = 256

// A Sample is the elements of an array at some places, which depend on its length.
type Sample [sampleLen]float32

// SampleResidual samples a residual at the places of a Contribution of as many elements.
func SampleResidual(residual []float32) (s Sample) {
	p := placesOf(len(residual))
	for i := range s {
		s[i] = residual[p.next()]
	}
	return s
}

// places are the elements that a sample of n elements has: one of each of as many equal parts.
type places struct {
	at           uint32
	from, stride int
}

// placesOf returns the places for n elements, at least sampleLen.
func placesOf(n int) places { return places{at: 1, stride: n / sampleLen} }

// next returns the next place. Places ascend.
func (p *places) next() int {
	p.at = p.at*1664525 + 1013904223 // a stride alone could meet one column of a matrix again and again
	place := p.from + int(p.at>>8)%p.stride
	p.from += p.stride
	return place
}

// gather sets sampleLen elements from a block.
func gather(dst []float32, d DType, block []byte) {
	size := d.Size()
	p := placesOf(len(block) / size)
	var bytes [sampleLen * 8]byte
	for i := range sampleLen {
		copy(bytes[i*size:(i+1)*size], block[p.next()*size:])
	}
	ToFloat32(dst, bytes[:sampleLen*size], d)
}
