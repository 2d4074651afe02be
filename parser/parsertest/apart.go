package parsertest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// Peer is the peer of Apart's connection.
const Peer = "tokyo"

// Apart checks that nobody else's words change a connection: x of conn has the same classes whether or not others play
// theirs before it and amid it. The others are connections of another job, of none, and, with members, of conn's own
// job through another peer; they carry the bytes of words, and have conn's addresses or the given ones. Where the job
// is conn's, the other peer's side alone speaks, since the nodes of this site are believed whatever peer they speak to.
func Apart(t *testing.T, members bool, fresh func() parser.Protocol, conn parser.Conn, x, words Exchange, client, server netip.AddrPort) {
	t.Helper()
	conn.Peer = Peer
	others := []parser.Conn{{Job: "another job", Peer: conn.Peer}, {Peer: conn.Peer + "'s neighbour"}, {Peer: "mallory"}}
	if conn.Job != "" {
		others = append(others, parser.Conn{Peer: conn.Peer})
		if members {
			others = append(others, parser.Conn{Job: conn.Job, Peer: "mallory"})
		}
	}
	for _, own := range []parser.Side{parser.Client, parser.Server} {
		conn.Own = own
		whole := playAmid(t, fresh(), conn, x, func(int) {})
		for _, other := range others {
			p := fresh()
			speak := func(n int) {
				for i := range 2 { // each end is the other's server in turn, and once it has conn's addresses
					c := other
					c.Sums, c.Ranks, c.Number, c.Own = conn.Sums, conn.Ranks, conn.Number, parser.Side(i)
					if c.Client, c.Server = client, server; n%4 == 0 {
						c.Client, c.Server = conn.Client, conn.Server
					}
					said := words
					if c.Job == conn.Job {
						said = slices.DeleteFunc(slices.Clone(words), func(piece Piece) bool { return piece.From == c.Own })
					}
					if n%2 == 1 {
						c.Client, c.Server = c.Server, c.Client
					}
					if _, err := Play(p, c, said, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			speak(0)
			if diff := whole.Diff(playAmid(t, p, conn, x, speak)); diff != "" {
				t.Fatalf("job %q of peer %q, own side %v, after words of job %q of peer %q: %s", conn.Job, conn.Peer, own, other.Job, other.Peer, diff)
			}
		}
	}
}

// playAmid plays x in pieces, and calls amid a few times between them.
func playAmid(t *testing.T, p parser.Protocol, conn parser.Conn, x Exchange, amid func(n int)) Classes {
	t.Helper()
	calls := 0
	classes, err := Play(p, conn, x, func(n int) int {
		if calls++; calls%5 == 2 && calls < 20 {
			amid(calls)
		}
		return min(n, 1+calls*7)
	})
	if err != nil {
		t.Fatal(err)
	}
	return classes
}
