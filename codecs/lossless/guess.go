package lossless

// guess returns the form under which bytes of unknown type are likely to get shortest.
func (s *scratch) guess(chunk []byte) form {
	for _, f := range [...]form{formInt32, formInt64} {
		w := f.width()
		n := len(chunk) / w * w
		if _, ok := differences(s.differences.room(n), chunk[:n], w, false); ok {
			return f
		}
	}
	best, smallest := formBytes, 9.0
	for _, f := range [...]form{formBytes, formFloat32, formFloat16, formFloat64, formInt16, formInt32, formInt64} {
		s.sample.take(f, chunk)
		sum := 0.0
		for p := range f.width() {
			bits, _ := s.sample.bits(p)
			sum += bits
		}
		if mean := sum / float64(f.width()); mean < smallest-guessMargin {
			best, smallest = f, mean
		}
	}
	return best
}

// guessMargin is the number of bits for each byte by which a form must be better than one before it in the list:
// samples are small.
const guessMargin = 0.05
