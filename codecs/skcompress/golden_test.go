package skcompress

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func TestGoldenVectors(t *testing.T) { codectest.Golden(t, parse) }

// The vectors are what an implementation makes that shares nothing with this package but its comment.
func TestGoldenVectorsElsewhere(t *testing.T) { codectest.Elsewhere(t) }
