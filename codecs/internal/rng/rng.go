// Package rng draws the random numbers of stochastic methods. A [Source] is seeded with the values to encode, so that
// an encoding can be made again from its input, and yet workers, blocks and steps draw independently of each other. The
// wire has as much of a draw as a decoder needs.
//
// The generator is SplitMix64, which is as good as 64 bits of state can be and inlines ([Steele, Lea and Flood],
// with the constants of Java's SplittableRandom.mix64). It keeps no secret.
//
// [Steele, Lea and Flood]: https://doi.org/10.1145/2660193.2660195
package rng

import (
	"math"
	"math/bits"
)

// A Source is a generator of uniform numbers. The zero Source is one of them; it must not be shared.
type Source struct{ state uint64 }

const (
	gamma = 0x9e3779b97f4a7c15 // the odd number next to 2^64 over the golden ratio
	prime = 0x9fb21c651e98df25 // odd, with bits as if drawn
)

// Of returns the Source of one encoding: of a codec's parameter seed, the number step of the encoding among its
// encoder's, and the values x themselves, since workers that count alike have gradients unlike each other. It reads x
// once.
func Of(seed, step uint64, x []float32) Source {
	return Source{mix(mix(mix(seed+gamma)+step+gamma) + hash(x))}
}

// From returns the Source of state, for methods that send the state with which their draws begin.
func From(state uint64) Source { return Source{state} }

// Uint64 returns 64 random bits.
func (s *Source) Uint64() uint64 {
	s.state += gamma
	return mix(s.state)
}

// Uint32 returns 32 random bits.
func (s *Source) Uint32() uint32 { return uint32(s.Uint64() >> 32) }

// Float64 returns a multiple of 2^-53, at least 0 and less than 1.
func (s *Source) Float64() float64 { return float64(s.Uint64()>>11) * 0x1p-53 }

// Uint64n returns a number less than n, each with the same probability. It panics if n is 0.
func (s *Source) Uint64n(n uint64) uint64 {
	if n == 0 {
		panic("rng: a number less than 0")
	}
	// The products x·n of a random x, cut into intervals of 2^64, have a number of x too many in some: these are drawn
	// again.
	high, low := bits.Mul64(s.Uint64(), n)
	if low < n {
		for tooMany := -n % n; low < tooMany; {
			high, low = bits.Mul64(s.Uint64(), n)
		}
	}
	return high
}

// mix is a bijection in which all output bits depend on all input bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hash returns a number that depends on the bits of every value, their order and how many there are. In each of its
// lanes one turn is a bijection of the lane for a given value, and of the value for a given lane: values that differ in
// one place have other hashes.
func hash(x []float32) uint64 {
	a, b, c, d := uint64(len(x)), uint64(1), uint64(2), uint64(3)
	for ; len(x) >= 4; x = x[4:] {
		a = mixLane(a, x[0])
		b = mixLane(b, x[1])
		c = mixLane(c, x[2])
		d = mixLane(d, x[3])
	}
	for _, v := range x {
		a = mixLane(a, v)
	}
	return mix(mix(mix(a+gamma)+b)+c) + mix(d)
}

func mixLane(lane uint64, v float32) uint64 {
	return bits.RotateLeft64((lane^uint64(math.Float32bits(v)))*prime, 29)
}
