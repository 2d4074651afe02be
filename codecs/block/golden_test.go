package block

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

func TestGoldenVectors(t *testing.T) {
	asmtest.Each(t, func(t *testing.T) { codectest.Golden(t, parse) })
}

// The vectors are what an implementation makes that shares nothing with this package but its comment.
func TestGoldenVectorsElsewhere(t *testing.T) { codectest.Elsewhere(t) }
