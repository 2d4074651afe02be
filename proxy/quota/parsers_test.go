package quota

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// A newcomer is a protocol that counts its connections. A broken one panics.
type newcomer struct {
	made   int
	broken bool
}

func (*newcomer) String() string        { return "newcomer" }
func (*newcomer) Traits() parser.Traits { return parser.Traits{} }

func (n *newcomer) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	n.made++
	if n.broken {
		panic("broken")
	}
	return &sized{64 << 10}, &sized{1}
}

// A sized parser says how many bytes it holds.
type sized struct{ bytes int }

func (s *sized) Next(b []byte) (parser.Segment, error) { return parser.Segment{Len: len(b)}, nil }
func (s *sized) Held() int                             { return s.bytes }

// A connection that says nothing has no parsers. The first bytes of either direction make the parsers of both, which
// then count the memory that they hold.
func TestParsersAreMadeWithTheFirstBytes(t *testing.T) {
	for _, own := range []parser.Side{parser.Client, parser.Server} {
		q := New(1, 1<<20)
		protocol := new(newcomer)
		mine, delivered, release := q.Parsers("p", []parser.Protocol{protocol}, parser.Conn{Own: own}, slog.New(slog.DiscardHandler), noMetrics{}, nil)
		if protocol.made != 0 || held(mine) != 0 {
			t.Fatalf("own %v: %d parsers before a byte, which hold %d", own, protocol.made, held(mine))
		}
		if _, err := delivered.Next([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if _, err := mine.Next([]byte{0}); err != nil {
			t.Fatal(err)
		}
		want := [2]int{64 << 10, 1}
		if own == parser.Server {
			want[0], want[1] = want[1], want[0]
		}
		if got := [2]int{held(mine), held(delivered)}; got != want || protocol.made != 1 {
			t.Errorf("own %v: parsers made %d times hold %v, want once and %v", own, protocol.made, got, want)
		}
		release()
	}
}

// The first bytes of both directions may come at the same time.
func TestParsersAreMadeOnce(t *testing.T) {
	for range 100 {
		protocol := new(newcomer)
		mine, delivered, _ := New(2, 1<<20).Parsers("p", []parser.Protocol{protocol}, parser.Conn{}, slog.New(slog.DiscardHandler), noMetrics{}, nil)
		var all sync.WaitGroup
		for _, p := range []parser.Parser{mine, delivered} {
			all.Go(func() {
				if _, err := p.Next([]byte{0}); err != nil {
					t.Error(err)
				}
			})
		}
		if all.Wait(); protocol.made != 1 {
			t.Fatalf("made %d times", protocol.made)
		}
	}
}

// A parser that cannot be made leaves the bytes of both directions verbatim.
func TestParserThatCannotBeMade(t *testing.T) {
	q := New(1, 1<<20)
	mine, delivered, _ := q.Parsers("p", []parser.Protocol{&newcomer{broken: true}}, parser.Conn{}, slog.New(slog.DiscardHandler), noMetrics{}, nil)
	for _, p := range []parser.Parser{mine, delivered, mine} {
		if _, err := p.Next([]byte{0}); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("error %v, want the panic's", err)
		}
	}
}

func held(p parser.Parser) int { return parser.Held(p.(*meter).Parser) }
