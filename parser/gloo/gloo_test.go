package gloo

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

func fresh() parser.Protocol { return new(Protocol) }

// The preamble of a sender that is ready to send 303064 bytes for the all-reduce of tag 6, as captured from PyTorch
// 1.13.
var captured = []byte{
	0x30, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 4,
	0, 0, 0, 0, 0, 0, 0, 0, 0xd8, 0x9f, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
}

func TestReadsACapturedPreamble(t *testing.T) {
	o, ok := parseOp(captured)
	if !ok || o.code != notifySendReady || o.length != 303064 {
		t.Fatalf("%+v, %v", o, ok)
	}
	if o.slot.kind() != allReduce || o.slot.tag() != 6 {
		t.Errorf("slot %#x: kind %d, tag %d", uint64(o.slot), o.slot.kind(), o.slot.tag())
	}
}

// appendOp appends an op whose payload, if it has one, is length bytes of its own length's low byte.
func appendOp(b []byte, code opcode, s slot, length int) []byte {
	nbytes := preambleLen
	if code.payload() {
		nbytes += length
	}
	for _, x := range []uint64{uint64(nbytes), uint64(code), uint64(s), 0, uint64(length), 0} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	for range nbytes - preambleLen {
		b = append(b, byte(length))
	}
	return b
}

func slotOf(k kind, tag uint32) slot { return slot(k)<<56 | slot(tag)<<24 }

// story is a short talk with every opcode, an empty payload and messages of several slots.
func story(first []byte) parsertest.Exchange {
	ar, gather := slotOf(allReduce, 1), slotOf(allGather, 0)
	client, server := first, []byte(nil)
	client = appendOp(client, notifySendReady, gather, 4)
	server = appendOp(server, notifyRecvReady, gather, 4)
	client = appendOp(client, sendUnboundBuffer, gather, 4)
	client = appendOp(client, notifySendReady, ar, 80)
	server = appendOp(server, notifyRecvReady, ar, 80)
	server = appendOp(server, notifySendReady, ar, 72)
	client = appendOp(client, sendUnboundBuffer, ar, 80)
	client = appendOp(client, sendUnboundBuffer, slotOf(7, 2), 0)
	client = appendOp(client, sendBuffer, 2, 12)
	server = appendOp(server, sendUnboundBuffer, ar, 72)
	return parsertest.Exchange{{From: parser.Client, Bytes: client}, {From: parser.Server, Bytes: server}}
}

func TestConformance(t *testing.T) {
	conn := parser.Conn{Sums: parser.SumsGradients, Own: parser.Server}
	broken := story(nil)
	broken[0].Bytes = append(append([]byte{}, broken[0].Bytes...), make([]byte, 60)...)
	parsertest.Run(t, fresh, conn, story(nil), story(make([]byte, 8)), broken, story([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
		parsertest.Exchange{{From: parser.Client, Bytes: make([]byte, 8)}})
}

// A whole job: the learnt step does not depend on how the streams are cut either.
func TestConformanceOfJobs(t *testing.T) {
	small := [][]int64{{40, 30}, {40}, {30, 40}, {1, 30}}
	jobs := []gloosim.Job{
		{Ranks: 2, Tags: true, FirstID: true, Calls: gloosim.DDP{Shapes: small, DType: tensor.Float32, Steps: 4, Buckets: [][]int{{3, 2}, {1, 0}}, Buffers: 64}.Calls()},
		{Ranks: 2, Tags: true, Calls: gloosim.DDP{Shapes: small, DType: tensor.BFloat16, Steps: 4, Unused: true}.Calls()},
		{Ranks: 2, Calls: repeatSteps(4, func(s int) []gloosim.Call {
			return []gloosim.Call{gloosim.Gradients("w", s, 1200, tensor.Float32), gloosim.Gradients("v", s, 1000, tensor.Float32),
				gloosim.Gradients("u", s, 1300, tensor.Float32), gloosim.Gradients("loss", s, 1, tensor.Float32)}
		})},
	}
	var exchanges []parsertest.Exchange
	for _, j := range jobs {
		exchanges = append(exchanges, exchange(gloosim.Run(j)))
	}
	for _, own := range []parser.Side{parser.Client, parser.Server} {
		parsertest.Run(t, fresh, parser.Conn{Sums: parser.SumsGradients, Own: own}, exchanges...)
	}
}

// exchange returns the bytes of the first connection of a trace.
func exchange(trace *gloosim.Trace) parsertest.Exchange {
	var x parsertest.Exchange
	for _, e := range trace.Events {
		if e.Conn == 0 {
			x = append(x, parsertest.Piece{From: e.From, Bytes: e.Bytes})
		}
	}
	return x
}

// Every payload byte is a tensor's and no other byte is, with and without the pair's number in front.
func TestFindsPayloads(t *testing.T) {
	for name, first := range map[string][]byte{"A": nil, "B": {5, 0, 0, 0, 0, 0, 0, 0}} {
		got, err := parsertest.Play(fresh(), parser.Conn{}, story(first), nil)
		if err != nil {
			t.Fatal(err)
		}
		sizes := func(runs []parsertest.Span) (out []int) {
			for _, r := range runs {
				if r.Tensor.Size > 0 {
					out = append(out, r.Len)
				}
			}
			return out
		}
		if c, s := sizes(got.Client), sizes(got.Server); !equal(c, []int{4, 80, 12}) || !equal(s, []int{72}) {
			t.Errorf("variant %s: payloads of %v and %v bytes", name, c, s)
		}
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Incomplete, foreign and broken input have three answers.
func TestAnswers(t *testing.T) {
	ready := appendOp(nil, notifySendReady, slotOf(allReduce, 1), 4)
	long := append([]byte{}, ready...)
	binary.LittleEndian.PutUint64(long[32:], math.MaxUint64)
	offset := append([]byte{}, ready...)
	offset[24] = 1
	for _, c := range []struct {
		name         string
		bytes        []byte
		foreign, bad bool
	}{
		{name: "nothing but the pair's number", bytes: make([]byte, 8)},
		{name: "an op cut short", bytes: ready[:47]},
		{name: "text", bytes: []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), foreign: true},
		{name: "TLS", bytes: append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 64)...), foreign: true},
		{name: "a store's request", bytes: []byte{0, 0xce, 0xf7, 0x85, 0x3c, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, foreign: true},
		{name: "a length beyond 2^63", bytes: long, foreign: true},
		{name: "an offset where none belongs", bytes: offset, foreign: true},
		{name: "an op, then something else", bytes: append(append([]byte{}, ready...), make([]byte, 48)...), bad: true},
	} {
		client, _ := new(Protocol).New(parser.Conn{})
		var err error
		for rest := c.bytes; err == nil && len(rest) > 0; {
			var seg parser.Segment
			seg, err = client.Next(rest)
			rest = rest[seg.Len:]
		}
		if got := errors.Is(err, parser.ErrForeign); got != c.foreign || (err != nil) != (c.foreign || c.bad) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
