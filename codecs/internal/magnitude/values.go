package magnitude

import "github.com/gradproxy/gradproxy/codecs/internal/arith"

// Values are those of a block: X, or, where Add is not nil, the sums X[i]+Add[i], rounded to float32, which error feedback
// encodes. So sums need no memory of their own.
type Values struct{ X, Add []float32 }

// Len returns how many there are.
func (v Values) Len() int { return len(v.X) }

// Slice returns those from from to to, without a copy.
func (v Values) Slice(from, to int) Values {
	if v.Add == nil {
		return Values{X: v.X[from:to]}
	}
	return Values{v.X[from:to], v.Add[from:to]}
}

// At returns value i.
func (v Values) At(i int) float32 {
	if v.Add == nil {
		return v.X[i]
	}
	return v.X[i] + v.Add[i]
}

// appendTo appends the values to dst.
func (v Values) appendTo(dst []float32) []float32 {
	n := len(dst)
	dst = append(dst, v.X...)
	if v.Add != nil {
		arith.Add(dst[n:], dst[n:], v.Add)
	}
	return dst
}
