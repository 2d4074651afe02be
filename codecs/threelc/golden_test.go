package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

func TestGoldenVectors(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) { codectest.Golden(t, parse) })
}

// The vectors are what an implementation of the paper makes that shares nothing with this package.
func TestGoldenVectorsElsewhere(t *testing.T) { codectest.Elsewhere(t) }
