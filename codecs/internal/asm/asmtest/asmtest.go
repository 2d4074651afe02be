// Package asmtest runs tests with every kernel that the processor has.
package asmtest

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm"
)

// Tiers lists those of this processor, asm.Plain first: only that and the best where the race detector, which does not see
// kernels, makes tests slow.
func Tiers() []asm.Tier {
	if race && asm.Best() > asm.Plain {
		return []asm.Tier{asm.Plain, asm.Best()}
	}
	var all []asm.Tier
	for t := asm.Plain; t <= asm.Best(); t++ {
		all = append(all, t)
	}
	return all
}

// Each runs f as a subtest at each tier. No test that calls it may be parallel to others.
func Each(t *testing.T, f func(t *testing.T)) {
	for _, tier := range Tiers() {
		t.Run(tier.String(), func(t *testing.T) {
			defer asm.Limit(tier)()
			f(t)
		})
	}
}

// Do calls f at each tier, for a fuzz target: f's t is the caller's.
func Do(t *testing.T, f func(tier asm.Tier)) {
	for _, tier := range Tiers() {
		restore := asm.Limit(tier)
		f(tier)
		restore()
		if t.Failed() {
			t.Fatalf("at tier %v", tier)
		}
	}
}
