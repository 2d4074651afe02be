// Package parsertest checks that a protocol's parsers keep the promises of package parser.
package parsertest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
)

// small is the length, in bytes, up to which an Exchange is tried truncated at every point.
const small = 4 << 10

// Run checks the parsers of a protocol, whose values fresh makes, on each of the exchanges between the ends of conn:
// how a stream is cut into calls changes the class of no byte; calls neither modify nor retain their argument; segments
// are within bounds; nothing is left behind when a stream stops anywhere. Truncation is tried at every point of
// exchanges of up to 4 KiB and at points chosen at random of longer ones; the seed is logged.
func Run(t *testing.T, fresh func() parser.Protocol, conn parser.Conn, exchanges ...Exchange) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, x := range exchanges {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			whole, err := Play(fresh(), conn, x, nil)
			if err != nil {
				t.Fatalf("whole: %v", err)
			}
			cuts := map[string]Cut{
				"byte by byte":  func(int) int { return 1 },
				"in small bits": func(n int) int { return 1 + rnd.IntN(min(n, 61)) },
				"at random":     func(n int) int { return 1 + rnd.IntN(n) },
			}
			for name, cut := range cuts {
				got, err := Play(fresh(), conn, x, cut)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if diff := whole.Diff(got); diff != "" {
					t.Errorf("cut %s: %s", name, diff)
				}
			}
			truncate(t, fresh, conn, x, whole, rnd)
		})
	}
}

// AnyCut is Run for fuzzers: it gives an exchange to a new connection's parsers whole and in small pieces, and returns
// the classes, which must be the same.
func AnyCut(t *testing.T, fresh func() parser.Protocol, conn parser.Conn, x Exchange) Classes {
	t.Helper()
	whole, err := Play(fresh(), conn, x, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := 0
	cut, err := Play(fresh(), conn, x, func(n int) int { k = k*7%31 + 1; return min(n, k) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := whole.Diff(cut); diff != "" {
		t.Fatal(diff)
	}
	return whole
}

// truncate checks that the classes of bytes do not depend on the bytes after them: it cuts the stream short.
func truncate(t *testing.T, fresh func() parser.Protocol, conn parser.Conn, x Exchange, whole Classes, rnd *rand.Rand) {
	t.Helper()
	total := x.Len()
	tries := total
	if total > small {
		tries = 20
	}
	for i := range tries {
		n := i
		if total > small {
			n = rnd.IntN(total)
		}
		cut := x.Truncate(n)
		got, err := Play(fresh(), conn, cut, nil)
		if err != nil {
			t.Fatalf("the first %d bytes alone: %v", n, err)
		}
		if diff := whole.truncate(cut).Diff(got); diff != "" {
			t.Fatalf("the first %d bytes alone: %s", n, diff)
		}
	}
}
