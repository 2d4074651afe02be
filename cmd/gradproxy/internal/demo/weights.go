package demo

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
)

// sum hashes all bits of the weights.
func sum(params []train.Param) [sha256.Size]byte {
	var b []byte
	for _, p := range params {
		for _, v := range p.Value {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return sha256.Sum256(b)
}

// distance returns |a - b| / |b|, of all weights together.
func distance(a, b []train.Param) float64 {
	var apart, norm float64
	for i, p := range a {
		for j, v := range p.Value {
			w := float64(b[i].Value[j])
			d := float64(v) - w
			apart, norm = apart+d*d, norm+w*w
		}
	}
	if apart == 0 {
		return 0
	}
	return math.Sqrt(apart / norm)
}
