package grpcany

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

func fresh() parser.Protocol { return new(Protocol) }

// conn is the connection of a client on host 10.0.0.n.
func conn(n byte) parser.Conn {
	return parser.Conn{Job: "job", Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 40_000), Server: netip.MustParseAddrPort("10.0.1.1:5000")}
}

// floats is n float32 values of a small network's weights.
func floats(n int, seed uint64) (b []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64()*0.05)))
	}
	return b
}

// field is a field of bytes.
func field(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

// named is a message with a text, a number and bytes, as frameworks send an array.
func named(name string, round uint64, b []byte) []byte {
	m := field(1, []byte(name))
	m = protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), round)
	return append(m, field(7, b)...)
}

// header is a message of texts, as frameworks send before others.
func header(receiver string) []byte {
	return field(1, append(field(1, []byte("server")), field(2, []byte(receiver))...))
}

const path = "/openfl.aggregator.Aggregator/GetTensor"

// round is the calls of a round of one client: it gets two arrays and sends them back.
func round(tb testing.TB, size int, client string, get, send uint64) parsertest.Exchange {
	w := grpctest.New(tb)
	var result []byte
	for i, n := range []int{3000, 400} {
		name := fmt.Sprintf("layer%d", i)
		w.Unary(path, append(header(client), field(2, []byte(name))...), append(header(client), field(3, named(name, get, floats(n, get+uint64(i))))...), size)
		result = append(result, field(5, named(name, send, floats(n, send+uint64(i))))...)
	}
	w.Unary("/openfl.aggregator.Aggregator/SendResults", append(header(client), result...), header(client), size)
	return w.Exchange()
}

func TestConforms(t *testing.T) {
	chat := grpctest.New(t)
	for range 2 {
		id := chat.Call("/a.B/Push")
		for i := range 3 {
			chat.Data(parser.Client, id, grpctest.Prefixed(field(1, floats(500+i, 9))), i == 2)
		}
		chat.Respond(id)
		chat.Trailers(id)
	}
	parsertest.Run(t, fresh, conn(1), round(t, 700, "one", 1, 2), append(round(t, 1<<14, "one", 1, 2), round(t, 4000, "one", 3, 4)[3:]...), chat.Exchange())
}

// Without a schema the bytes of arrays are found once a message has shown where they lie, with their type, and by their
// names: the same for each client that gets one, and for each round.
func TestArraysAreFound(t *testing.T) {
	p := fresh()
	first := parsertest.Find(t, p, conn(1), round(t, 1000, "one", 1, 2))
	if again := parsertest.Find(t, fresh(), conn(2), round(t, 500, "two", 1, 3)); first[parser.Server][0].Base != again[parser.Server][0].Base || !bytes.Equal(first[parser.Server][0].Data, again[parser.Server][0].Data) {
		t.Error("the first message to another client has another base, or is not the same")
	}
	one := parsertest.Find(t, p, conn(1), round(t, 1000, "one", 11, 12))
	two := parsertest.Find(t, p, conn(2), round(t, 333, "two", 11, 22))
	for i, n := range []int{3000, 400} {
		for side, seed := range [2]uint64{12, 11} {
			for _, got := range [][2][]parsertest.Found{one, two} {
				if len(got[side]) != 2 {
					t.Fatalf("%d tensors of the %v, want 2", len(got[side]), parser.Side(side))
				}
			}
			v := one[side][i]
			if v.Role != tensor.Unknown || v.DType != tensor.Float32 || !bytes.Equal(v.Data, floats(n, seed+uint64(i))) || v.Base == 0 || v.Key == 0 {
				t.Errorf("%v, array %d: %+v has %d bytes", parser.Side(side), i, v.Tensor, len(v.Data))
			}
		}
		if one[parser.Server][i].Base != two[parser.Server][i].Base || one[parser.Client][i].Base == two[parser.Client][i].Base {
			t.Error("clients get arrays of different bases, or send such of the same")
		}
	}
	if one[parser.Server][0].Base == one[parser.Server][1].Base {
		t.Error("two arrays have one base")
	}
	again := parsertest.Find(t, p, conn(1), round(t, 5000, "one", 21, 22))
	for side := range again {
		for i, v := range again[side] {
			if v.Base != one[side][i].Base {
				t.Errorf("%v, array %d: the base of the next round is another", parser.Side(side), i)
			}
		}
	}
}

// A call that is made again, on another connection and in other frames, has the bytes and bases of the first, which are
// said to repeat, from the first message on. Bytes that are no numbers are not.
func TestCallsAgain(t *testing.T) {
	p := fresh()
	for i, seed := range []uint64{1, 11} {
		lost := parsertest.Find(t, p, conn(1), round(t, 1000, "one", seed, seed))
		again := parsertest.Find(t, p, conn(1), round(t, 777, "one", seed, seed))
		for side := range again {
			if len(again[side]) != 2 || i > 0 && len(lost[side]) != 2 {
				t.Fatalf("%d and %d tensors of the %v, want 2 of a call that is made again", len(lost[side]), len(again[side]), parser.Side(side))
			}
			for k, v := range lost[side] {
				if a := again[side][k]; !v.Repeats || !a.Repeats || i > 0 && (a.Base != v.Base || a.Key != v.Key || !bytes.Equal(a.Data, v.Data)) {
					t.Errorf("array %d of the %v: %+v, at first %+v", k, parser.Side(side), a.Tensor, v.Tensor)
				}
			}
		}
	}
	image := make([]byte, 8<<10)
	rand.NewChaCha8([32]byte{1}).Read(image)
	var repeats []bool
	for range 3 {
		w := grpctest.New(t)
		w.Unary("/a.B/Show", field(1, image), nil, 1<<14)
		for _, v := range parsertest.Find(t, p, conn(1), w.Exchange())[parser.Client] {
			repeats = append(repeats, v.Repeats)
		}
	}
	if want := []bool{true, false, false}; !slices.Equal(repeats, want) {
		t.Errorf("an image repeats: %v, want %v", repeats, want)
	}
}

// Calls whose frames interleave have tensors of distinct keys.
func TestCallsInterleave(t *testing.T) {
	p := fresh()
	parsertest.Find(t, p, conn(1), round(t, 1000, "one", 1, 2))
	w := grpctest.New(t)
	a, b := w.Call(path), w.Call(path)
	w.Respond(a)
	w.Respond(b)
	m := grpctest.Prefixed(append(header("one"), field(3, named("layer0", 1, floats(3000, 5)))...))
	for at := 0; at < len(m); at += 1000 {
		for _, id := range []uint32{a, b} {
			w.Data(parser.Server, id, m[at:min(len(m), at+1000)], false)
		}
	}
	got := parsertest.Find(t, p, conn(1), w.Exchange())[parser.Server]
	if len(got) != 2 || got[0].Key == got[1].Key || got[0].Base != got[1].Base || !bytes.Equal(got[0].Data, got[1].Data) {
		t.Errorf("%d tensors", len(got))
	}
}

// Texts that are others in every message are no part of a name. The messages of a stream that ends are known by their
// numbers, and the messages of one that does not end are not.
func TestNames(t *testing.T) {
	p := fresh()
	bases := map[uint64]bool{}
	for i := range 2*maxFresh + 20 {
		w := grpctest.New(t)
		w.Unary("/a.B/Push", append(field(1, fmt.Appendf(nil, "request %d", i)), field(2, floats(300, 1))...), nil, 1<<14)
		for _, v := range parsertest.Find(t, p, conn(1), w.Exchange())[parser.Client] {
			if clear(bases); i > maxFresh+1 {
				bases[v.Base] = true
			}
		}
	}
	if len(bases) != 1 {
		t.Errorf("%d bases at the end, want 1", len(bases))
	}
	stream := func(path string, calls int) (list []parsertest.Found) {
		w := grpctest.New(t)
		for range calls {
			id := w.Call(path)
			for i := range 3 {
				w.Data(parser.Client, id, grpctest.Prefixed(field(1, floats(500, uint64(i)))), i == 2)
			}
			w.Respond(id)
			w.Trailers(id)
		}
		return parsertest.Find(t, p, conn(1), w.Exchange())[parser.Client]
	}
	if s := stream("/a.B/Stream", 1); len(s) != 3 || s[1].Base != s[2].Base {
		t.Errorf("%d tensors of a stream that is the first, or of two bases", len(s))
	}
	s := stream("/a.B/Stream", 3)
	if n := len(s); n < 6 || s[n-1].Base == s[n-2].Base || s[n-1].Base != s[n-4].Base {
		t.Errorf("of %d tensors of ended streams the last have other bases than their numbers'", n)
	}
}

// The type of floats shows in their bits, wherever they begin.
func TestTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 4000)
	for i := range values {
		values[i] = float32(r.NormFloat64() * 0.03)
	}
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		var b []byte
		if d == tensor.Float64 {
			for range values {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.NormFloat64()))
			}
		} else {
			b = make([]byte, len(values)*d.Size())
			tensor.FromFloat32(b, values, d)
		}
		for phase := range d.Size() {
			var s sampler
			s.feed(append(bytes.Repeat([]byte{' '}, phase), b...))
			if got, want := s.verdict(), (types{d, phase}); got != want {
				t.Errorf("%v behind %d bytes: %+v", d, phase, got)
			}
		}
	}
	random := make([]byte, 1<<14)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for name, b := range map[string][]byte{"zeros": make([]byte, 1<<14), "random": random, "text": []byte(strings.Repeat("a text, ", 1<<11)), "few": random[:900]} {
		var s sampler
		s.feed(b)
		if got := s.verdict(); got.known() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Floats are no message, and a message is, whatever the bytes in it.
func TestTrial(t *testing.T) {
	for seed := range uint64(200) {
		for _, c := range []struct {
			b    []byte
			want []finding
		}{
			{floats(300+int(seed), seed), []finding{{path: 5, kind: aLeaf}}},
			{named("a", seed, floats(300, seed)), []finding{{path: 0x0507, kind: aLeaf}, {path: 5, kind: aMessage}}},
			{field(3, named("a", seed, floats(300, seed))), []finding{{path: 0x050307, kind: aLeaf}, {path: 0x0503, kind: aMessage}, {path: 5, kind: aMessage}}},
		} {
			var x trial
			x.begin(5, len(c.b))
			for b := c.b; len(b) > 0; {
				n := min(len(b), 1+int(seed)*7)
				x.feed(b[:n])
				b = b[n:]
			}
			got := x.end()
			if len(got) != len(c.want) {
				t.Fatalf("seed %d: %+v, want %+v", seed, got, c.want)
			}
			for i, w := range c.want {
				if got[i].path != w.path || got[i].kind != w.kind {
					t.Errorf("seed %d: %+v, want %+v", seed, got, c.want)
				}
			}
		}
	}
}

// Connections whose calls another parser reads are foreign, and so is HTTP/1.1.
func TestForeign(t *testing.T) {
	for _, path := range []string{"/tensorflow.WorkerService/RecvTensor", "/streamer.Streamer/Stream", "/flwr.proto.Fleet/PullMessages", "no path"} {
		w := grpctest.New(t)
		w.Call(path)
		client, _ := fresh().New(conn(1))
		var err error
		for _, x := range w.Exchange() {
			if x.From == parser.Client && err == nil {
				for b := x.Bytes; len(b) > 0 && err == nil; {
					var seg parser.Segment
					if seg, err = client.Next(b); err == nil {
						b = b[seg.Len:]
					}
				}
			}
		}
		if err == nil {
			_, err = client.Next([]byte{0})
		}
		if !errors.Is(err, parser.ErrForeign) {
			t.Errorf("%s: %v", path, err)
		}
	}
	client, _ := fresh().New(conn(1))
	if _, err := client.Next([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); !errors.Is(err, parser.ErrForeign) {
		t.Errorf("HTTP/1.1: %v", err)
	}
}

// Whatever methods, fields and texts a peer sends, memory is bounded.
func TestMemoryIsBounded(t *testing.T) {
	p := new(Protocol)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	b := floats(256, 1)
	for i := range 3000 {
		w := grpctest.New(t)
		for j := range 4 {
			w.Unary(fmt.Sprintf("/a.B/%d", i/2), append(field(1, fmt.Appendf(nil, "%d-%d", i, j)), field(protowire.Number(2+i%200), b)...), nil, 1<<14)
		}
		parsertest.Find(t, p, conn(1), w.Exchange())
	}
	if grown := heap() - before; grown > 16<<20 || p.facts.places.Len() > maxPlaces || p.facts.contexts.Len() > maxContexts {
		t.Errorf("%d bytes, %d places, %d contexts", grown, p.facts.places.Len(), p.facts.contexts.Len())
	}
	runtime.KeepAlive(p)
}

// Messages that are under way count among the bytes that a connection holds; of a call that is over nothing is left.
func TestMessagesAreHeld(t *testing.T) {
	w := grpctest.New(t)
	w.Unary("/a.B/C", field(1, floats(4096, 1)), nil, 1<<14)
	client, _ := fresh().New(conn(1))
	var first []byte
	for _, p := range w.Exchange() {
		if p.From == parser.Client {
			first = append(first, p.Bytes...)
		}
	}
	feed := func(b []byte) {
		for len(b) > 0 {
			seg, err := client.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	feed(first[:len(first)/2])
	under := parser.Held(client)
	feed(first[len(first)/2:])
	if done := parser.Held(client); under-done < 16<<10 { // a trial with its samplers
		t.Errorf("%d bytes are held in mid-message, %d after it", under, done)
	}
}

// No bytes in any order make a parser panic, break the contract, or depend on how they are cut; and no role is ever
// given.
func FuzzNext(f *testing.F) {
	f.Add(parsertest.Fold(round(f, 700, "one", 1, 2)))
	f.Add(parsertest.Fold(append(round(f, 3000, "one", 1, 2), round(f, 2000, "one", 3, 4)[3:]...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parsertest.AnyCut(t, fresh, conn(1), parsertest.Unfold(b))
		for _, spans := range [][]parsertest.Span{c.Client, c.Server} {
			for _, s := range spans {
				if v := s.Tensor; v.Size > 0 && (v.Role != tensor.Unknown || v.Key == 0 || v.Base == 0) {
					t.Fatalf("%+v", v)
				}
			}
		}
	})
}

// No bytes of messages make their reader panic, or depend on how they are cut: two messages of a method; the first
// shows the kinds of its fields.
func FuzzMessage(f *testing.F) {
	f.Add(field(5, named("a", 1, floats(300, 1))), field(5, named("a", 2, floats(300, 2))))
	f.Add(field(1, floats(1000, 1)), field(1, field(2, floats(400, 3))))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var want []parser.Segment
		for _, step := range []int{1 << 30, 1, 19} {
			s := &service{facts: new(facts)}
			var got []parser.Segment
			for _, b := range [][]byte{first, second} {
				var m message
				m.begin(&call{service: s}, parser.Client, 0, len(b))
				for at := 0; at < len(b); {
					piece := b[at:min(len(b), at+step)]
					seg := m.Next(piece, len(b)-at)
					if v := seg.Tensor; seg.Len < 1 || seg.Len > len(piece) || v.Size > 0 && v.Off+seg.Len > v.Size {
						t.Fatalf("%+v of %d bytes", seg, len(piece))
					}
					last := len(got) - 1
					if v := seg.Tensor; last >= 0 && got[last].Tensor.Key == v.Key && (v.Size == 0 || v.Off > 0) {
						got[last].Len += seg.Len
					} else {
						v.Hold = 0
						got = append(got, parser.Segment{Len: seg.Len, Tensor: v})
					}
					at += seg.Len
				}
			}
			if want == nil {
				want = got
			} else if fmt.Sprint(want) != fmt.Sprint(got) {
				t.Fatalf("in pieces of %d bytes: %v, else %v", step, got, want)
			}
		}
	})
}

// Whatever the connections of other jobs, and of other peers of the same job, show, no byte of a connection changes its
// class.
func FuzzFactsOfOthers(f *testing.F) {
	seeds := []parsertest.Exchange{append(round(f, 3000, "one", 1, 2), round(f, 2000, "one", 3, 4)[3:]...)}
	for _, x := range seeds {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		victim := conn(1)
		if !named {
			victim.Job = ""
		}
		for _, x := range seeds {
			parsertest.Apart(t, true, fresh, victim, x, parsertest.Unfold(b), conn(2).Client, victim.Server)
		}
	})
}
