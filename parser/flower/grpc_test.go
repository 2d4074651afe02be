package flower

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// modelOf is the files of a model: two arrays of floats, an integer, one without elements, and one of an unknown type.
func modelOf(seed uint64) [][]byte {
	return [][]byte{npyOf("<f4", 4, 300, seed), npyOf("<i8", 8, 1, seed), npyOf("<f8", 8, 40, seed), npyOf("<f4", 4, 0, 1), npyOf("<U2", 8, 3, 1)}
}

// joined is a round of start_server and start_client, in frames of size bytes.
func joined(tb testing.TB, size int) parsertest.Exchange {
	w := grpctest.New(tb)
	id := w.Call("/flwr.proto.FlowerService/Join")
	w.Respond(id)
	data := func(from parser.Side, b []byte) {
		for b = grpctest.Prefixed(b); len(b) > 0; {
			n := min(size, len(b))
			w.Data(from, id, b[:n], false)
			b = b[n:]
		}
	}
	data(parser.Server, sim.Request(sim.GetParameters, nil))
	data(parser.Client, sim.Answer(sim.GetParameters, sim.Parameters(modelOf(1))))
	data(parser.Server, sim.Request(sim.Fit, sim.Parameters(modelOf(1))))
	data(parser.Client, sim.Answer(sim.Fit, sim.Parameters(modelOf(2))))
	data(parser.Server, sim.Request(sim.Evaluate, sim.Parameters(modelOf(2))))
	data(parser.Client, sim.Answer(sim.Evaluate, nil))
	data(parser.Server, sim.Request(sim.End, nil))
	return w.Exchange()
}

// recordSets is a round of release 1.18, and one of 1.10 and 1.4, in frames of size bytes.
func recordSets(tb testing.TB, size int) parsertest.Exchange {
	w := grpctest.New(tb)
	keys := []string{"0", "1", "2", "3", "4"}
	of := func(content []byte) []byte {
		return sim.Field(nil, 2, sim.Field(sim.Nested(sim.Field(sim.Number(nil, 1, 77), 8, []byte("train")), 1), 2, content))
	}
	self := sim.Nested(sim.Number(nil, 1, 9), 1)
	w.Unary("/flwr.proto.Fleet/PullMessages", self, of(sim.RecordSet("fitins.parameters", modelOf(1), keys...)), size)
	w.Unary("/flwr.proto.Fleet/PushMessages", append(bytes.Clone(self), of(sim.RecordSet("fitres.parameters", modelOf(2), keys...))...), nil, size)
	task := func(list protowire.Number, set []byte) []byte {
		return sim.Nested(sim.Field(sim.Field(nil, 8, []byte("train")), 9, set), 4, list)
	}
	w.Unary("/flwr.proto.Fleet/PullTaskIns", self, task(2, sim.RecordSet("fitins.parameters", modelOf(1), keys...)), size)
	w.Unary("/flwr.proto.Fleet/PushTaskRes", append(bytes.Clone(self), task(2, sim.RecordSet("fitres.parameters", modelOf(2), keys...))...), nil, size)
	w.Unary("/flwr.proto.Fleet/PullTaskIns", nil, sim.Nested(sim.Parameters(modelOf(1)), 1, 4, 101, 4, 2), size)
	w.Unary("/flwr.proto.Fleet/PushTaskRes", sim.Nested(sim.Parameters(modelOf(2)), 2, 4, 102, 4, 1), nil, size)
	return w.Exchange()
}

// overGRPC is a round of release 1.39, in frames of size bytes; pulls of two objects interleave.
func overGRPC(tb testing.TB, size int) parsertest.Exchange {
	down, up, _ := job(1)
	w := grpctest.New(tb)
	w.Unary("/flwr.proto.Fleet/PullMessages", nil, sim.Pulled(down), size)
	type answer struct {
		id   uint32
		rest []byte
	}
	var open []answer
	more := func() {
		a := &open[0]
		n := min(size, len(a.rest))
		w.Data(parser.Server, a.id, a.rest[:n], false)
		if a.rest = a.rest[n:]; len(a.rest) == 0 {
			w.Trailers(a.id)
			open = open[1:]
			return
		}
		open = append(open[1:], *a)
	}
	down.LeavesFirst(func(o sim.Object) {
		id := w.Call("/flwr.proto.Fleet/PullObject")
		w.Message(parser.Client, id, sim.PullObject(9, o.ID), size)
		w.Respond(id)
		open = append(open, answer{id, grpctest.Prefixed(sim.ObjectPulled(o))})
		for len(open) > 1 {
			more()
		}
	})
	for len(open) > 0 {
		more()
	}
	w.Unary("/flwr.proto.Fleet/PushMessages", sim.Pushed(9, up), nil, size)
	up.LeavesFirst(func(o sim.Object) {
		w.Unary("/flwr.proto.Fleet/PushObject", sim.PushObject(9, o), sim.ObjectPushed(), size)
	})
	return w.Exchange()
}

func TestGRPCConforms(t *testing.T) {
	other := grpctest.New(t)
	other.Unary("/tensorflow.MasterService/CreateSession", []byte("abc"), []byte("def"), 10)
	parsertest.Run(t, fresh, conn(1), joined(t, 1<<14), joined(t, 333), recordSets(t, 1000), overGRPC(t, 700), other.Exchange())
}

// spans returns the tensors of one side whose first bytes were seen, by key in their order, and all bytes that are
// elements.
func spans(t *testing.T, x parsertest.Exchange) (firsts [2][]tensor.Tensor, bytesOf [2]int) {
	t.Helper()
	c, err := parsertest.Play(fresh(), conn(1), x, nil)
	if err != nil {
		t.Fatal(err)
	}
	for side, list := range [2][]parsertest.Span{c.Client, c.Server} {
		for _, s := range list {
			if s.Tensor.Size == 0 {
				continue
			}
			if bytesOf[side] += s.Len; s.Tensor.Off == 0 {
				firsts[side] = append(firsts[side], s.Tensor)
			}
		}
	}
	return firsts, bytesOf
}

// Models and results are state; each array has one base in all messages of a direction, and no array shares it. A
// result has the model's base as its Model, and the parameters that training begins with have it as their own.
func TestModelsAreState(t *testing.T) {
	const elements = 300*4 + 8 + 40*8
	for name, c := range map[string]struct {
		x        parsertest.Exchange
		up, down int // models
		bases    int // for each array
		results  int // messages that answer a model
	}{
		"Join":       {joined(t, 500), 2, 2, 1, 1},
		"RecordSets": {recordSets(t, 500), 3, 3, 3, 3}, // of three releases, which no job mixes
	} {
		firsts, n := spans(t, c.x)
		if n != [2]int{c.up * elements, c.down * elements} {
			t.Errorf("%s: %d bytes of elements, want %d models up and %d down, of %d bytes", name, n, c.up, c.down, elements)
		}
		bases, results := map[uint64]tensor.Tensor{}, 0 // by the model's base
		for side, list := range firsts {
			if len(list) != 3*[2]int{c.up, c.down}[side] {
				t.Errorf("%s: %d tensors from side %d", name, len(list), side)
			}
			for _, v := range list {
				if v.Role != tensor.State || v.Why != tensor.OK {
					t.Errorf("%s: %+v", name, v)
				}
				model := cmp.Or(v.Model, v.Base)
				if b, ok := bases[model]; ok && (b.DType != v.DType || b.Size != v.Size) {
					t.Errorf("%s: %+v has the base of %+v", name, v, b)
				}
				if bases[model] = v; v.Model != 0 {
					results++
				}
				if v.Answered != (v.Model == 0) || parser.Side(side) == parser.Server && v.Model != 0 || v.Model == v.Base {
					t.Errorf("%s: side %d: %+v", name, side, v)
				}
			}
		}
		if len(bases) != 3*c.bases || results != 3*c.results {
			t.Errorf("%s: %d bases of 3 arrays, and %d results", name, len(bases), results)
		}
	}
}

// A call that is made again, as where no answer came in time, has the bytes and bases of the first, and they are said
// to repeat, over each transport and of each release; so do models that a Join sends, but no results in it. A second
// client's results come in between, which have the bases of the first one's.
func TestCallsAgain(t *testing.T) {
	_, up, _ := job(1)
	keys := []string{"0", "1", "2", "3", "4"}
	set := func(record string, seed uint64) []byte { return sim.RecordSet(record, modelOf(seed), keys...) }
	unary := func(method string, request, response []byte, size int) parsertest.Exchange {
		w := grpctest.New(t)
		w.Unary("/flwr.proto.Fleet/"+method, request, response, size)
		return w.Exchange()
	}
	tree := sim.Field(sim.Nested(sim.Number(nil, 1, 77), 1, 2), 3, up.Tree())
	chunk := up.Children[0].Children[1].Children[0].Children[0]
	request := sim.Field(sim.Number(sim.Nested(sim.Number(nil, 1, 9), 1), 2, 77), 3, []byte(chunk.ID))
	pushed, answer := sim.Field(bytes.Clone(request), 4, chunk.Content), sim.Field(sim.Number(nil, 1, 1), 3, chunk.Content)
	for name, c := range map[string]struct {
		call  func(size int, seed uint64) parsertest.Exchange
		other uint64 // of the second client's result; 0: none is sent
		side  parser.Side
		want  int
	}{
		"PushTaskRes": {func(n int, s uint64) parsertest.Exchange {
			return unary("PushTaskRes", sim.Nested(sim.Field(nil, 9, set("fitres.parameters", s)), 4, 2), nil, n)
		}, 3, parser.Client, 3},
		"PushTaskRes of 1.4": {func(n int, s uint64) parsertest.Exchange {
			return unary("PushTaskRes", sim.Nested(sim.Parameters(modelOf(s)), 2, 4, 102, 4, 1), nil, n)
		}, 3, parser.Client, 3},
		"PullTaskIns": {func(n int, s uint64) parsertest.Exchange {
			return unary("PullTaskIns", nil, sim.Nested(sim.Field(nil, 9, set("fitins.parameters", s)), 4, 2), n)
		}, 3, parser.Server, 3},
		"PushMessages": {func(n int, s uint64) parsertest.Exchange {
			return unary("PushMessages", sim.Nested(set("arrays", s), 2, 2), nil, n)
		}, 3, parser.Client, 3},
		"PullMessages": {func(n int, s uint64) parsertest.Exchange {
			return unary("PullMessages", nil, sim.Nested(set("arrays", s), 2, 2), n)
		}, 3, parser.Server, 3},
		"PushObject": {func(n int, _ uint64) parsertest.Exchange {
			w := grpctest.New(t)
			w.Unary("/flwr.proto.Fleet/PushMessages", tree, nil, n)
			w.Unary("/flwr.proto.Fleet/PushObject", pushed, nil, n)
			return w.Exchange()
		}, 0, parser.Client, 1},
		"push-object": {func(n int, _ uint64) parsertest.Exchange { return cut(httpCall("push-object", pushed, nil), n) }, 0, parser.Client, 1},
		"pull-object": {func(n int, _ uint64) parsertest.Exchange { return cut(httpCall("pull-object", request, answer), n) }, 0, parser.Server, 1},
		"Join":        {func(n int, _ uint64) parsertest.Exchange { return joined(t, n) }, 0, parser.Server, 6},
	} {
		p := fresh()
		lost := parsertest.Find(t, p, conn(1), c.call(500, 2))[c.side]
		if c.other != 0 {
			parsertest.Find(t, p, conn(2), c.call(500, c.other))
		}
		again := parsertest.Find(t, p, conn(1), c.call(801, 2))[c.side]
		if len(lost) != c.want || len(again) != c.want {
			t.Errorf("%s: %d tensors, then %d, want %d each time", name, len(lost), len(again), c.want)
			continue
		}
		for i, v := range again {
			if v.Base != lost[i].Base || v.Key != lost[i].Key || !bytes.Equal(v.Data, lost[i].Data) || !v.Repeats || !lost[i].Repeats {
				t.Errorf("%s: tensor %d is %+v, at first %+v", name, i, v.Tensor, lost[i].Tensor)
			}
		}
	}
	for _, v := range parsertest.Find(t, fresh(), conn(1), joined(t, 500))[parser.Client] {
		if v.Repeats {
			t.Errorf("a result in a Join repeats: %+v", v.Tensor)
		}
	}
}

// cut is an exchange in pieces of at most n bytes.
func cut(x parsertest.Exchange, n int) (pieces parsertest.Exchange) {
	for _, p := range x {
		for b := range slices.Chunk(p.Bytes, n) {
			pieces = append(pieces, parsertest.Piece{From: p.From, Bytes: b})
		}
	}
	return pieces
}

// Over gRPC objects are found as over HTTP, also where two come at a time.
func TestObjectsOverGRPC(t *testing.T) {
	_, _, files := job(1)
	firsts, n := spans(t, overGRPC(t, 300))
	for side, of := range [2][][]byte{files[1], files[0]} {
		want := 0
		for _, chunk := range elements(of) {
			want += len(chunk)
		}
		if n[side] != want || len(firsts[side]) != 5 {
			t.Errorf("side %d: %d bytes in %d tensors, want %d in 5", side, n[side], len(firsts[side]), want)
		}
		for _, v := range firsts[side] {
			if v.Role != tensor.Exact {
				t.Errorf("%+v", v)
			}
		}
	}
}

// A model that is cut off does not spoil the next call.
func TestCutOffModel(t *testing.T) {
	w := grpctest.New(t)
	id := w.Call("/flwr.proto.Fleet/PullMessages")
	w.Message(parser.Client, id, nil, 100)
	w.Respond(id)
	set := sim.Nested(sim.RecordSet("arrays", modelOf(1), "a"), 2, 2)
	w.Data(parser.Server, id, grpctest.Prefixed(set)[:700], false)
	w.Frame(parser.Client, func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) })
	w.Unary("/flwr.proto.Fleet/PullMessages", nil, set, 1<<14)
	firsts, _ := spans(t, w.Exchange())
	if n := len(firsts[parser.Server]); n != 4 {
		t.Errorf("%d tensors, want one that is cut off and three", n)
	}
}

// Of calls without end few are read; calls that are over make room.
func TestCallsAreBounded(t *testing.T) {
	w := grpctest.New(t)
	set := sim.Nested(sim.RecordSet("arrays", modelOf(1)[:1], "a"), 2, 2)
	for range 2 * maxCalls { // each ends
		w.Unary("/flwr.proto.Fleet/PushMessages", set, nil, 1<<14)
	}
	for range 2 * maxCalls { // none does
		w.Message(parser.Client, w.Call("/flwr.proto.Fleet/PushMessages"), set, 1<<14)
	}
	firsts, _ := spans(t, w.Exchange())
	if n := len(firsts[parser.Client]); n != 3*maxCalls {
		t.Errorf("%d tensors, want %d of calls that end and %d of others", n, 2*maxCalls, maxCalls)
	}
}
