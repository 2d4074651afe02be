package all

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
)

// Recordings of JAX jobs from their start, each with sums of 10 elements of 4 bytes. Their coordination service
// listens at port 29500.
const (
	twoRanks    = "../../cmd/gradproxy/internal/inspect/testdata/jax.pcap.gz"
	fourMeshes  = "testdata/meshes.pcap.gz"
	coordinator = 29500
)

// A message is a tensor, as the parsers of one connection have named it.
type message struct {
	label  parser.Label
	length int
}

// A wire gives one connection of a capture to the parsers of the proxies beside both ends.
type wire struct {
	cut      int // bytes that a parser is given at once
	conn     capture.Conn
	parsers  [2][2][]parser.Parser // of the proxy beside a side, for a direction
	messages [2][2][]message       // likewise
}

func (w *wire) Gap(parser.Side) {}
func (w *wire) Close(bool)      {}

func (w *wire) Data(from parser.Side, b []byte) {
	for own := range w.parsers {
		w.parsers[own][from] = slices.DeleteFunc(w.parsers[own][from], func(p parser.Parser) bool {
			for piece := range slices.Chunk(b, w.cut) {
				if !w.read(p, own, from, piece) {
					return true
				}
			}
			return false
		})
	}
}

// read gives bytes to a parser, and reports whether it has understood them.
func (w *wire) read(p parser.Parser, own int, from parser.Side, b []byte) bool {
	for len(b) > 0 {
		seg, err := p.Next(b)
		if err != nil {
			return false
		}
		if t := seg.Tensor; t.Size > 0 && t.Off == 0 {
			w.messages[own][from] = append(w.messages[own][from], message{parser.LabelOf(p, t), t.Size})
		}
		b = b[seg.Len:]
	}
	return true
}

// play gives a capture to the proxies of two sites. They do not see connections to the coordination service that are
// unseen, by their number.
func play(t *testing.T, file, job string, cut int, unseen ...int) (wires []*wire) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sites, calls := [2][]parser.Protocol{Protocols(), Protocols()}, 0
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		w := &wire{cut: cut, conn: c}
		if c.Server.Port() == coordinator {
			if calls++; slices.Contains(unseen, calls-1) {
				return w
			}
		}
		for own := range sites {
			for _, p := range sites[own] {
				client, server := p.New(parser.Conn{Job: job, Peer: "peer", Client: c.Client, Server: c.Server, Number: c.Number, Own: parser.Side(own)})
				w.parsers[own][parser.Client] = append(w.parsers[own][parser.Client], client)
				w.parsers[own][parser.Server] = append(w.parsers[own][parser.Server], server)
			}
		}
		wires = append(wires, w)
		return w
	})
	if err != nil {
		t.Fatal(err)
	}
	return wires
}

// rankOf returns the rank, of two, that has sent messages of these lengths: of 40 bytes rank 0 sends the last segment,
// which is shorter, as its second message, and rank 1 as its fourth. It returns -1, 0 if the lengths do not tell.
func rankOf(lengths []int) (rank, ranks int) {
	for i := range len(lengths) - 3 {
		switch four := lengths[i : i+4]; {
		case slices.Equal(four, []int{12, 4, 12, 12}):
			return 0, 2
		case slices.Equal(four, []int{12, 12, 12, 4}):
			return 1, 2
		}
	}
	return -1, 0
}

// ends returns the names of a direction's ends, which must be the same in all of its messages from the first on.
func ends(t *testing.T, all []message) (from, to string) {
	t.Helper()
	from, to = all[0].label.From, all[0].label.To
	for i, m := range all {
		if m.label.From != from || m.label.To != to {
			t.Fatalf("message %d goes from %q to %q, the first from %q to %q", i, m.label.From, m.label.To, from, to)
		}
	}
	return from, to
}

func lengthsOf(all []message) (lengths []int) {
	for _, m := range all {
		lengths = append(lengths, m.length)
	}
	return lengths
}

// The ranks of a JAX job are known from its first message on, at both sites, if the proxies see one process's
// connection to the job's coordination service, and they are the ones that the lengths of the messages show. If the
// proxies see none, the ends have their addresses. In the end the messages have their places in the step.
func TestRanksOfJAX(t *testing.T) {
	files := []string{twoRanks}
	if dir := os.Getenv(require.CapturesVariable); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "gloo-jax-*.pcap.gz"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for _, job := range []string{"", "mine"} {
			for _, unseen := range [][]int{nil, {0, 1}, {0, 2}, {0, 1, 2}} { // connection 0 carries no bytes
				for _, cut := range []int{1 << 16, 7} {
					t.Run(fmt.Sprintf("%s, job %q, unseen %v, cut %d", filepath.Base(file), job, unseen, cut), func(t *testing.T) {
						directions := 0
						for _, w := range play(t, file, job, cut, unseen...) {
							for own := range w.messages {
								for side, all := range w.messages[own] {
									if len(all) > 0 {
										directions++
										checkTwoRanks(t, w.conn, parser.Side(side), all, len(unseen) < 3)
									}
								}
							}
						}
						if directions != 4 {
							t.Errorf("%d directions have messages, want the 2 of one connection at 2 sites", directions)
						}
					})
				}
			}
		}
	}
}

func checkTwoRanks(t *testing.T, c capture.Conn, side parser.Side, all []message, known bool) {
	t.Helper()
	rank, ranks := rankOf(lengthsOf(all))
	if rank < 0 {
		t.Fatal("the lengths do not show the sender's rank: the test is not what it says")
	}
	want := [2]string{fmt.Sprintf("rank %d of %d", rank, ranks), fmt.Sprintf("rank %d of %d", 1-rank, ranks)}
	if !known {
		want = [2]string{c.Client.String(), c.Server.String()}
		if side == parser.Server {
			slices.Reverse(want[:])
		}
	}
	if from, to := ends(t, all); from != want[0] || to != want[1] {
		t.Errorf("messages from the %v go from %q to %q, want %q", side, from, to, want)
	}
	steps := 0
	for _, m := range all[len(all)/2:] {
		if strings.HasPrefix(m.label.Name, "message ") && strings.Contains(m.label.Name, " of ") {
			steps++
		}
	}
	if steps < len(all)/2 {
		t.Errorf("%d of the last %d messages from the %v have a place in the step", steps, len(all)/2, side)
	}
}

// Three processes of one host have six connections in four meshes, in one of which they have another order. Each
// connection has the ranks of its own mesh: in the ring rank r sends to rank r-1, and the lengths show the rank or,
// among three ranks, the number of messages agrees with it.
func TestRanksInSeveralMeshes(t *testing.T) {
	seen := map[string]int{}
	for _, w := range play(t, fourMeshes, "mine", 1<<16) {
		for own := range w.messages {
			for side, all := range w.messages[own] {
				if len(all) == 0 {
					continue
				}
				from, to := ends(t, all)
				seen[from+" to "+to]++
				lengths := lengthsOf(all)
				want, ranks := rankOf(lengths)
				if got := fmt.Sprintf("rank %d of %d", want, ranks); want >= 0 && from != got {
					t.Errorf("%v: messages from the %v go from %q to %q, want from %q", w.conn, parser.Side(side), from, to, got)
				}
				// Five segments of 8 bytes among three ranks, three times: in each phase a rank sends all segments
				// except the ones of one rank. Ranks 0 and 1 have two segments each, and rank 2 has one.
				three := map[string]int{"rank 0 of 3": 3 * (3 + 4), "rank 1 of 3": 3 * (3 + 3), "rank 2 of 3": 3 * (4 + 3)}
				if want < 0 && len(all) != three[from] {
					t.Errorf("%v: %d messages from %q to %q, want %d", w.conn, len(all), from, to, three[from])
				}
			}
		}
	}
	want := map[string]int{
		"rank 0 of 2 to rank 1 of 2": 3 * 2, "rank 1 of 2 to rank 0 of 2": 3 * 2, // at two sites each
		"rank 0 of 3 to rank 2 of 3": 2, "rank 1 of 3 to rank 0 of 3": 2, "rank 2 of 3 to rank 1 of 3": 2,
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("directions %v, want %v", seen, want)
	}
}
