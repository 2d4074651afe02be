package pslite

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// A push request of ten float32 with key 6, as MXNet 1.9.1 sends it.
var captured = []byte{8, 0, 0x20, 1, 0x28, 1, 0x30, 0, 0x38, 0, 0x40, 7, 0x4a, 3, 8, 0x0b, 3, 0x50, 0, 0x60, 0, 0x68, 0}

func TestReadsACapturedMeta(t *testing.T) {
	m, ok := parseMeta(captured)
	want := meta{request: true, push: true, timestamp: 7, types: conventional, frames: 3}
	if !ok || !reflect.DeepEqual(m, want) || m.kind() != push {
		t.Errorf("%+v, %v", m, ok)
	}
}

// A meta that is written can be read, in both dialects and all layouts.
func TestMetasOfAllKinds(t *testing.T) {
	table := []node{nodeOf(9), {id: 8, host: "worker-0.example", port: 65535, recovery: true}, nodeOf(1)}
	for _, c := range []struct {
		kind kind
		m    meta
	}{
		{control, meta{head: unset, command: addNode, nodes: table}},
		{control, meta{head: 7, command: 3, request: true, push: true, simple: true}},
		{command, meta{head: 4, request: true, simple: true, timestamp: 1, app: 2, customer: 3}},
		{command, meta{simple: true, timestamp: 1 << 30}},
		{push, meta{request: true, push: true, pull: true, types: conventional, frames: 3}},
		{push, meta{head: -1, request: true, push: true, types: [3]byte{7, 9}, frames: 2}},
		{pull, meta{request: true, pull: true, types: [3]byte{8, 11}, frames: 2}},
		{answer, meta{pull: true, types: conventional, frames: 3}},
		{answer, meta{pull: true, push: true, types: conventional, frames: 3}},
		{ack, meta{push: true}},
	} {
		if got, ok := parseMeta(c.m.proto()); !ok || got.kind() != c.kind || !reflect.DeepEqual(got, c.m) {
			t.Errorf("%+v: %+v, %v", c.m, got, ok)
		}
		m := c.m
		m.packed, m.pull = true, !m.push // there is no flag
		kind := c.kind
		if c.m.push && c.kind == answer {
			kind = ack
		}
		for _, p := range packings {
			if got, ok := parseMeta(m.pack(p)); !ok || got.kind() != kind || !reflect.DeepEqual(got, m) {
				t.Errorf("%+v in %d bytes: %+v, %v", m, p.size, got, ok)
			}
		}
	}
}

// A pull has no flag of its own before 2019: every request that is no push is one.
func TestMetasWithoutPull(t *testing.T) {
	for _, push := range []bool{false, true} {
		b := appendInt(appendInt(appendInt(appendInt(nil, 1, 0), 4, 1), 5, bit(push)), 6, 0)
		if m, ok := parseMeta(b); !ok || m.pull == push {
			t.Errorf("push %v: %+v, %v", push, m, ok)
		}
	}
}

// A meta that could have another meaning is not read.
func TestRefusesOtherMetas(t *testing.T) {
	good := meta{request: true, push: true, types: conventional, frames: 3}
	packed := good.pack(packings[0])
	set := func(at int, b byte) []byte {
		c := bytes.Clone(packed)
		c[at] = b
		return c
	}
	for name, b := range map[string][]byte{
		"nothing":                 nil,
		"another first field":     captured[2:],
		"an unknown field":        appendInt(good.proto(), 14, 1),
		"a fixed-size field":      append(good.proto(), 0x75, 0, 0, 0, 0),
		"a flag of 2":             appendInt(good.proto(), 4, 2),
		"bytes for an integer":    appendBytes(good.proto(), 7, []byte("x")),
		"an integer for bytes":    appendInt(good.proto(), 2, 1),
		"cut short":               captured[:len(captured)-1],
		"cut in the types":        captured[:15],
		"four frames":             appendBytes(good.proto(), 9, []byte{8}),
		"an unknown type":         appendBytes(meta{}.proto(), 9, []byte{8, 12}),
		"one frame of data":       meta{types: conventional, frames: 1}.proto(),
		"a control without one":   appendBytes(meta{}.proto(), 3, nil),
		"an unknown control":      appendBytes(meta{}.proto(), 3, []byte{8, 2, 0x28, 0}),
		"a node that is none":     appendBytes(meta{}.proto(), 3, []byte{8, 2, 0x12, 1, 0xff}),
		"a control with data":     meta{command: 3, types: conventional, frames: 3}.proto(),
		"a packed one, longer":    append(bytes.Clone(packed), 0),
		"a packed one, shorter":   packed[:len(packed)-1],
		"a packed flag of 2":      set(32, 2),
		"a packed push of 2":      set(68, 2),
		"a packed command of 99":  set(8, 99),
		"a negative command":      set(11, 0x80),
		"a negative body":         set(7, 0x80),
		"negative nodes":          set(15, 0x80),
		"negative types":          set(47, 0x80),
		"a packed type of 12":     set(112, 12),
		"zeros":                   make([]byte, 100),
		"more types than a frame": set(44, 200),
	} {
		if m, ok := parseMeta(b); ok {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// The sizes of the layouts are the same for no numbers of nodes.
func TestPackingsDiffer(t *testing.T) {
	for i, p := range packings {
		for _, q := range packings[:i] {
			for n := range 2 * maxNodes {
				if p.size+n*p.node == q.size+n*q.node && n > 0 {
					t.Errorf("%+v and %+v with %d nodes", p, q, n)
				}
			}
		}
	}
}

// A table of any length costs no more memory than the longest valid one.
func TestLongTables(t *testing.T) {
	m := meta{head: unset, command: addNode}
	for i := range 4 * maxNodes {
		m.nodes = append(m.nodes, node{id: 8 + i, host: fmt.Sprint(i), port: 1})
	}
	for _, b := range [][]byte{m.proto(), m.pack(packings[3])} {
		if got, ok := parseMeta(b); !ok || len(got.nodes) != maxNodes+1 {
			t.Errorf("%d nodes, %v", len(got.nodes), ok)
		}
	}
}

// The heads of MXNet 1.9.1, request type by element type.
func TestHeads(t *testing.T) {
	types := map[tensor.DType][]int32{tensor.Float32: {0, 1, 3}, tensor.Float64: {2, 4}, tensor.Float16: {5, 8}, tensor.Int32: {14, 19},
		tensor.Int8: {20, 26}, tensor.Int64: {27, 34}, tensor.BFloat16: {90, 103}}
	seen := map[int32]bool{}
	for d, heads := range types {
		for r, head := range heads {
			seen[head] = true
			if gotR, gotD, ok := parseHead(&meta{head: head}); !ok || gotR != request(r) || gotD != d {
				t.Errorf("head %d: %v %v %v, want %v %v", head, gotR, gotD, ok, r, d)
			}
		}
	}
	for _, head := range []int32{-1, -1 << 31, 6, 118, 1 << 20, unset} {
		if r, d, ok := parseHead(&meta{head: head}); ok {
			t.Errorf("head %d: %v %v", head, r, d)
		}
	}
	if _, _, ok := parseHead(&meta{head: 35, packed: true}); ok {
		t.Error("BytePS's type 7 is read as MXNet's")
	}
	if _, d, ok := parseHead(&meta{head: 5, packed: true}); !ok || d != tensor.Float16 {
		t.Error("BytePS's float16 is not read")
	}
}
