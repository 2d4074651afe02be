package probe

import (
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The committed files are the ones that the sources give, with the compiler that the generate line names.
func TestGeneratedFilesAreUpToDate(t *testing.T) { require.Generated(t, "probe", "doc.go") }
