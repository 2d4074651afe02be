package integration

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Packages are right Go on other systems and processors too, where types of syscall and constants of imported packages
// differ. Only types are checked, which takes a tenth of a compiler's time.
func TestOtherSystems(t *testing.T) {
	require.Long(t)
	for _, c := range []struct {
		system, processor string
		tests             bool
		packages          []string
	}{
		{"linux", "arm64", true, []string{"..."}},
		{"darwin", "arm64", true, []string{"cmd/...", "proxy/...", "bpf/...", "wan-sim/...", "codecs/codectest/...", "integration/vm/..."}},
		{"windows", "amd64", false, []string{"cmd/..."}},
	} {
		t.Run(c.system+", "+c.processor, func(t *testing.T) {
			t.Parallel()
			var list []string
			if c.tests {
				list = append(list, "-test")
			}
			for _, p := range c.packages {
				list = append(list, module+p)
			}
			s := newSource(t, c.system, c.processor, list...)
			s.bodies = func(path string) bool { return strings.HasPrefix(path, module) }
			checked := 0
			for path := range s.listed {
				if !s.bodies(path) || strings.HasSuffix(path, ".test") { // the go command writes the program of a package's tests
					continue
				}
				if _, err := s.check(path); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				checked++
			}
			if t.Logf("%d packages, tests apart", checked); checked < 20 {
				t.Errorf("%d packages are checked: the test shows little", checked)
			}
		})
	}
}
