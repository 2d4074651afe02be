//go:build amd64 || arm64

package probe

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// A symbol with a wrong length before a name is no library's, and would be passed over in silence where a release may
// lack the function.
func TestSymbolsAreWellFormed(t *testing.T) {
	part := regexp.MustCompile(`^([0-9]+)(.+)$`)
	all := slices.Concat([]string{symAllReduceBucket, symEndReducer, symNewBuckets, symAllreduce, symNextTag, symEndGroup, symNewGroup, symConnect, symOldWork, symMonitoredBarrier}, symOthers, symUntold)
	for _, symbol := range all {
		rest, parts := symbol[len("_ZN"):], 0
		for { // the nested name: lengths and names, and then E, or C1 or D1 of a constructor or destructor
			m := part.FindStringSubmatch(rest)
			if m == nil {
				break
			}
			n, err := strconv.Atoi(m[1])
			if err != nil || n > len(m[2]) {
				t.Fatalf("%s: a name of %s bytes is cut short", symbol, m[1])
			}
			rest = m[2][n:]
			parts++
		}
		if ends := regexp.MustCompile(`^(C1|D1)?E`).MatchString(rest); !ends || parts < 2 {
			t.Errorf("%s: %q follows %d names", symbol, rest, parts)
		}
	}
}
