// Package asmtest runs tests with every kernel that the processor has.
package asmtest

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor/simd"
)

// Tiers lists the tiers of this processor, simd.Plain first: only that and the best where the race detector, which does
// not see kernels, makes tests slow.
func Tiers() []simd.Tier {
	if race && simd.Best() > simd.Plain {
		return []simd.Tier{simd.Plain, simd.Best()}
	}
	var all []simd.Tier
	for t := simd.Plain; t <= simd.Best(); t++ {
		all = append(all, t)
	}
	return all
}

// Each runs f as a subtest at each tier. No test that calls it may be parallel to others.
func Each(t *testing.T, f func(t *testing.T)) {
	for _, tier := range Tiers() {
		t.Run(tier.String(), func(t *testing.T) {
			defer simd.Limit(tier)()
			f(t)
		})
	}
}

// Do calls f at each tier, for a fuzz target: f's t is the caller's.
func Do(t *testing.T, f func(tier simd.Tier)) {
	for _, tier := range Tiers() {
		restore := simd.Limit(tier)
		f(tier)
		restore()
		if t.Failed() {
			t.Fatalf("at tier %v", tier)
		}
	}
}
