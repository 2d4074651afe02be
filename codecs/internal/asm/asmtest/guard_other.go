//go:build !unix

package asmtest

import (
	"slices"
	"testing"
)

// Guarded returns a copy of b.
func Guarded(_ *testing.T, b []byte) []byte { return slices.Clone(b) }

// GuardedFloats returns a copy of x.
func GuardedFloats(_ *testing.T, x []float32) []float32 { return slices.Clone(x) }
