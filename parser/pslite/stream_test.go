package pslite

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

func fresh() parser.Protocol { return new(Protocol) }

// piece returns bytes that one side sent.
func piece(from parser.Side, parts ...[]byte) parsertest.Piece {
	return parsertest.Piece{From: from, Bytes: bytes.Join(parts, nil)}
}

// mxnet is a worker's connection to a server: commands, dense, sparse and compressed pushes, pulls.
func mxnet() parsertest.Exchange {
	return parsertest.Exchange{
		piece(parser.Client, hello(0, "DEALER", "ps9")[:10]), piece(parser.Server, hello(1, "ROUTER", "")[:11]),
		piece(parser.Client, hello(0, "DEALER", "ps9")[10:]), piece(parser.Server, hello(1, "ROUTER", "")[11:]),
		piece(parser.Client, say{kind: command, head: 3}.bytes(), say{kind: command, time: 1}.bytes(), of(3, 2).bytes()),
		piece(parser.Server, zframe(4, []byte("\x04PONG"))),
		piece(parser.Client, say{kind: pull, keys: []uint64{3}, time: 3}.bytes(),
			of(3, 4).with(func(s *say) { s.pulls = true }).bytes(),
			say{kind: push, head: 1, keys: []uint64{7, 7, 9}, vals: 96, lens: []int{0, 48, 48}, time: 5}.bytes(),
			say{kind: push, head: 1, keys: []uint64{7}, lens: []int{0}, time: 6}.bytes(),
			say{kind: push, head: 3, keys: []uint64{400, 8}, vals: 100, lens: []int{0, 100}, time: 7}.bytes(),
			zframe(4, []byte("\x04PING\x00\x00")),
			of(3, 4).bytes(), of(3, 8).bytes(), say{kind: push, keys: []uint64{3}, vals: 300, head: 5, time: 9}.bytes()),
	}
}

// byteps is one in BytePS's dialect, on which the answers return.
func byteps() parsertest.Exchange {
	x := parsertest.Exchange{piece(parser.Client, hello(1, "DEALER", "ps11")), piece(parser.Server, hello(1, "ROUTER", ""))}
	for time := range int32(4) {
		p := of(1<<16, time).with(func(s *say) { s.packed = true })
		x = append(x, piece(parser.Client, p.bytes()),
			piece(parser.Server, say{kind: ack, packed: true, back: "ps8"}.bytes(), p.with(func(s *say) { s.kind, s.back = answer, "ps8" }).bytes()))
	}
	return x
}

// listing is one of an application that has many keys in a message.
func listing() parsertest.Exchange {
	keys := run(1, 3, 100)
	return parsertest.Exchange{piece(parser.Client, hello(0, "DEALER", "ps9")), piece(parser.Server, hello(0, "ROUTER", "")),
		piece(parser.Client, listed(push, 1, keys).bytes(), listed(push, 2, keys).bytes(), listed(pull, 3, keys).bytes(),
			sparse(4, run(0, 2, 70)...).bytes(), sparse(5, 1).bytes(), listed(push, 6, keys[1:]).bytes(),
			floats(7, keys).bytes(), floats(8, keys[:20]).bytes(), floats(9, keys).bytes())}
}

// scheduled is a connection of the scheduler's.
func scheduled() parsertest.Exchange {
	return parsertest.Exchange{piece(parser.Server, hello(0, "ROUTER", "")),
		piece(parser.Client, hello(0, "DEALER", "ps1"), all(), multipart(meta{head: unset, command: 3}.proto()), multipart(meta{head: unset, command: 1}.proto()))}
}

// withTail is x with more bytes from the client at its end.
func withTail(x parsertest.Exchange, b ...byte) parsertest.Exchange {
	return append(x, piece(parser.Client, b, make([]byte, 20)))
}

func TestConformance(t *testing.T) {
	long := listed(push, 9, run(1, 1, 80)).with(func(s *say) { s.lens[70]++ }).bytes() // the lengths contradict the values
	lens := of(3, 10).with(func(s *say) { s.lens = []int{39} }).bytes()
	parsertest.Run(t, fresh, parser.Conn{Job: "job", Client: addressOf(9), Server: addressOf(8)}, mxnet(), byteps(), scheduled(),
		listing(), withTail(listing(), long...),
		withTail(mxnet(), 0x40), withTail(mxnet(), lens...), withTail(byteps(), 0, 3, 'a', 'b', 'c'),
		parsertest.Exchange{piece(parser.Client, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))},
		parsertest.Exchange{piece(parser.Client, mxnet()[0].Bytes, []byte{3, 1})})
	parsertest.Run(t, fresh, parser.Conn{}, mxnet(), byteps())
	parsertest.Run(t, fresh, parser.Conn{Sums: parser.SumsGradients}, mxnet(), listing())
}

// Pieces of a tensor say where they begin and how much of it follows.
func TestPiecesOfATensor(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	b := of(3, 1).with(func(s *say) { s.vals = 4000 }).bytes()
	off := 0
	for rest := b; len(rest) > 0; {
		seg, err := w.parsers[0].Next(rest[:min(len(rest), 1000)])
		if err != nil {
			t.Fatal(err)
		}
		if v := seg.Tensor; v.Size > 0 {
			if v.Off != off || v.Size != 4000 || v.Hold != 4000-off {
				t.Errorf("%+v at %d", v, off)
			}
			off += seg.Len
		}
		rest = rest[seg.Len:]
	}
	if off != 4000 {
		t.Errorf("%d bytes of tensors", off)
	}
}

// A stream that is not understood changes nothing for the others.
func TestBrokenStreamsStandAlone(t *testing.T) {
	n := newNetwork(t, "job")
	n.announce(9, all())
	w := n.connect(9, 8)
	w.say(say{kind: command, head: 0})
	w.say(of(3, 1))
	if w.send(0, []byte{0x80, 0}); w.err[0] == nil {
		t.Fatal("understood")
	}
	expect(t, "a gradient", n.connect(9, 8).say(of(3, 2)), tensor.Gradient, tensor.Float32)
	expect(t, "weights", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
}

// Lengths that contradict values which have a role already say that this was false.
func TestFalseLengthsReset(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	w.say(of(3, 1))
	w.send(0, of(3, 2).with(func(s *say) { s.lens = []int{39} }).bytes())
	if err := w.err[0]; !errors.Is(err, parser.ErrReset) || !errors.Is(err, parser.ErrForget) {
		t.Errorf("%v, want one that resets and forgets", err)
	}
	other := newNetwork(t, "job").connect(9, 8)
	other.say(of(3, 1))
	if other.send(0, []byte{0x80, 0}); other.err[0] == nil || errors.Is(other.err[0], parser.ErrReset) {
		t.Errorf("%v, want one that does not reset: no verdict was false", other.err[0])
	}
}
