package parsertest

import (
	"bytes"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
)

// An Exchange holds the bytes that the two ends of a connection sent, in the order in which they passed.
type Exchange []Piece

// A Piece holds the bytes that one end sent before the other did.
type Piece struct {
	From  parser.Side
	Bytes []byte
}

// Len returns the bytes of both directions.
func (x Exchange) Len() int {
	n := 0
	for _, t := range x {
		n += len(t.Bytes)
	}
	return n
}

// Truncate returns the first n bytes of x, in the order in which they passed.
func (x Exchange) Truncate(n int) Exchange {
	var out Exchange
	for _, t := range x {
		t.Bytes = t.Bytes[:min(n, len(t.Bytes))]
		out = append(out, t)
		n -= len(t.Bytes)
	}
	return out
}

// truncate returns the classes of the bytes that x has.
func (c Classes) truncate(x Exchange) Classes {
	var n [2]int
	for _, t := range x {
		n[t.From] += len(t.Bytes)
	}
	return Classes{runs(c.Client).truncate(n[0]), runs(c.Server).truncate(n[1])}
}

// A Cut says how many of the next n bytes, at least 1, the next call is given. nil: all.
type Cut func(n int) int

// Play gives the bytes of x to the parsers of a new connection of p. It returns an error if one breaks a promise that
// shows at once: a segment out of bounds, or an argument modified. It is no error that a parser stops understanding.
func Play(p parser.Protocol, conn parser.Conn, x Exchange, cut Cut) (Classes, error) {
	client, server := p.New(conn)
	players := [2]player{{parser: client}, {parser: server}}
	for i, t := range x {
		pl := &players[t.From]
		for rest := t.Bytes; len(rest) > 0; {
			n := len(rest)
			if cut != nil {
				n = cut(n)
			}
			if err := pl.give(rest[:n]); err != nil {
				return Classes{}, fmt.Errorf("piece %d, from the %v, at byte %d: %w", i, t.From, pl.runs.end(), err)
			}
			rest = rest[n:]
		}
	}
	return Classes{players[0].runs, players[1].runs}, nil
}

// A player feeds one parser.
type player struct {
	parser parser.Parser
	failed error
	buf    []byte
	runs   runs
}

// give hands b to the parser, in as many calls as it takes, and scribbles over each call's bytes afterwards.
func (p *player) give(b []byte) error {
	for len(b) > 0 {
		if p.failed != nil {
			p.runs = p.runs.add(parser.Segment{Len: len(b)})
			return nil
		}
		p.buf = append(p.buf[:0], b...)
		seg, err := p.parser.Next(p.buf)
		if !bytes.Equal(p.buf, b) {
			return fmt.Errorf("Next modified its argument")
		}
		for i := range p.buf {
			p.buf[i] ^= 0xa5
		}
		if err != nil {
			p.failed = err
			continue
		}
		if err := check(seg, len(b)); err != nil {
			return err
		}
		if seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
			parser.LabelOf(p.parser, seg.Tensor) // changes nothing
		}
		p.runs = p.runs.add(seg)
		b = b[seg.Len:]
	}
	return nil
}

// check compares a segment of n bytes or fewer with the contract of parser.Parser and tensor.Tensor.
func check(seg parser.Segment, n int) error {
	t := seg.Tensor
	switch {
	case seg.Len < 1 || seg.Len > n:
		return fmt.Errorf("a segment of %d bytes out of %d", seg.Len, n)
	case t.Size == 0 && (t.Off != 0 || t.Hold != 0):
		return fmt.Errorf("opaque bytes with an offset (%d) or hold (%d)", t.Off, t.Hold)
	case t.Size < 0, t.Off < 0, t.Hold < 0:
		return fmt.Errorf("negative size %d, offset %d or hold %d", t.Size, t.Off, t.Hold)
	case t.Size > 0 && (t.Off+seg.Len > t.Size || t.Off+t.Hold > t.Size):
		return fmt.Errorf("segment [%d, +%d), hold %d, of a tensor of %d bytes", t.Off, seg.Len, t.Hold, t.Size)
	case !t.DType.Valid():
		return fmt.Errorf("dtype %d is not in the list", t.DType)
	}
	return nil
}
