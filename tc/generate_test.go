package tc

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The committed programs are the ones that shape.c makes.
func TestGeneratedFilesAreCurrent(t *testing.T) { require.Generated(t, "tc", "program_linux.go") }
