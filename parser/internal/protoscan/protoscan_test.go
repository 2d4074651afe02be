package protoscan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A noter notes what it is told. Field 3 is a message, at any depth; field 4 is kept, 5 emitted.
type noter struct{ notes []string }

func (r *noter) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *noter) Field(p Path, n int) Action {
	r.note("field %x %d", p, n)
	return map[Path]Action{3: Descend, 4: Keep, 5: Emit}[p&0xff]
}
func (r *noter) Kept(p Path, b []byte)   { r.note("kept %x %q", p, b) }
func (r *noter) Number(p Path, v uint64) { r.note("number %x %d", p, v) }
func (r *noter) Leave(p Path)            { r.note("leave %x", p) }

// read reads a message in pieces of size bytes, 0: whole, and returns the notes and the emitted bytes.
func read(t testing.TB, b []byte, size int) (notes string, emitted []byte, broken bool) {
	r := new(noter)
	s := New(r, len(b))
	for rest := b; len(rest) > 0; {
		piece := rest
		if size > 0 {
			piece = rest[:min(size, len(rest))]
		}
		n, emit := s.Next(piece)
		if n < 1 || n > len(piece) {
			t.Fatalf("%d bytes of %d", n, len(piece))
		}
		if emit {
			emitted = append(emitted, rest[:n]...)
		}
		rest = rest[n:]
	}
	return strings.Join(r.notes, "; "), emitted, s.Broken()
}

func tag(b []byte, n protowire.Number, typ protowire.Type) []byte {
	return protowire.AppendTag(b, n, typ)
}

// sample has every wire type, empty and nested messages, and a field that comes after the emitted one.
func sample() []byte {
	inner := tag(nil, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, 1<<63|5)
	inner = protowire.AppendBytes(tag(inner, 5, protowire.BytesType), []byte("emitted"))
	inner = protowire.AppendBytes(tag(inner, 3, protowire.BytesType), nil)
	b := protowire.AppendFixed32(tag(nil, 1, protowire.Fixed32Type), 7)
	b = protowire.AppendFixed64(tag(b, 2, protowire.Fixed64Type), 8)
	b = protowire.AppendBytes(tag(b, 3, protowire.BytesType), inner)
	b = protowire.AppendBytes(tag(b, 4, protowire.BytesType), []byte("kept"))
	b = protowire.AppendBytes(tag(b, 1000, protowire.BytesType), []byte("skipped"))
	b = protowire.AppendBytes(tag(b, 5, protowire.BytesType), nil)
	return protowire.AppendBytes(tag(b, 4, protowire.BytesType), nil)
}

const sampleNotes = `number 1 7; number 2 8; field 3 22; number 301 9223372036854775813; field 305 7; field 303 0; leave 303; leave 3; ` +
	`field 4 4; kept 4 "kept"; field ff 7; field 5 0; field 4 0; kept 4 ""`

// Every cut of a message gives the same fields.
func TestCuts(t *testing.T) {
	for size := range 20 {
		notes, emitted, broken := read(t, sample(), size)
		if notes != sampleNotes || string(emitted) != "emitted" || broken {
			t.Errorf("in pieces of %d bytes: %q, broken %v, %s", size, emitted, broken, notes)
		}
	}
}

// A message that is none is skipped from there on.
func TestBroken(t *testing.T) {
	long := protowire.AppendBytes(tag(nil, 3, protowire.BytesType), []byte{1<<3 | 2, 9})
	for name, b := range map[string][]byte{
		"field 0":                      {2, 1, 0},
		"a group":                      tag(nil, 1, protowire.StartGroupType),
		"a varint of 11 bytes":         append([]byte{8}, bytes.Repeat([]byte{0x80}, 11)...),
		"a varint of 65 bits":          append(append([]byte{8}, bytes.Repeat([]byte{0xff}, 9)...), 2),
		"longer than its message":      append(long, make([]byte, 20)...),
		"a number beyond its message":  append(protowire.AppendBytes(tag(nil, 3, protowire.BytesType), []byte{1<<3 | 1}), make([]byte, 20)...),
		"a length of nearly 2^64":      append(append([]byte{5<<3 | 2}, bytes.Repeat([]byte{0xff}, 9)...), 1),
		"a tag of more than 32 bits":   {0xfa, 0xff, 0xff, 0xff, 0x7f, 0},
		"a field number of 2^29 is 11": {0x80, 0x80, 0x80, 0x80, 0x10, 0},
	} {
		if _, emitted, broken := read(t, b, 1); !broken || emitted != nil {
			t.Errorf("%s: %q, broken %v", name, emitted, broken)
		}
	}
}

// A field too long to be kept is skipped, and messages too deep are as well.
func TestLimits(t *testing.T) {
	b := protowire.AppendBytes(tag(nil, 4, protowire.BytesType), make([]byte, MaxKept+1))
	if notes, _, broken := read(t, b, 1000); strings.Contains(notes, "kept") || broken {
		t.Errorf("broken %v: %s", broken, notes)
	}
	deep := []byte("x")
	for range 20 {
		deep = protowire.AppendBytes(tag(nil, 3, protowire.BytesType), deep)
	}
	if notes, _, broken := read(t, deep, 0); strings.Count(notes, "field") != maxDepth+1 || broken {
		t.Errorf("broken %v: %s", broken, notes)
	}
}

func TestLeads(t *testing.T) {
	if p := Of(1, 2); !p.Leads(Of(1, 2)) || !p.Leads(Of(1, 2, 3)) || p.Leads(Of(1)) || p.Leads(Of(1, 3, 3)) || p.Leads(Of(2, 2)) {
		t.Error("a path leads elsewhere")
	}
}

// No bytes make a Scanner panic or depend on how they are cut.
func FuzzNext(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) {
		notes, emitted, broken := read(t, b, 0)
		for _, size := range []int{1, 3} {
			if n, e, x := read(t, b, size); n != notes || !bytes.Equal(e, emitted) || x != broken {
				t.Errorf("in pieces of %d bytes: %s, else %s", size, n, notes)
			}
		}
	})
}
