package protoscan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A noter notes everything that it is told. Field 3 is a message, at any depth; field 4 is kept, 5 emitted.
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

// read has s read a message of n bytes, as far as it has come in b, in pieces of size bytes, 0: whole, and returns the
// notes and the emitted bytes. take: of an emitted field the user takes half of the bytes at hand.
func read(t testing.TB, s *Scanner, b []byte, n, size int, take bool) (notes string, emitted []byte, broken bool) {
	t.Helper()
	r := new(noter)
	s.Begin(r, n)
	for rest := b; len(rest) > 0; {
		if got := s.Rest(); got != n-len(b)+len(rest) {
			t.Fatalf("%d bytes of %d have not come, not %d", n-len(b)+len(rest), n, got)
		}
		piece := rest
		if size > 0 {
			piece = rest[:min(size, len(rest))]
		}
		emitting := min(len(piece), s.Emitting())
		var m int
		var emit bool
		if take && emitting > 0 {
			m, emit = (emitting+1)/2, true
			s.Take(m)
		} else if m, emit = s.Next(piece); m < 1 || m > len(piece) || emit != (emitting > 0) || emit && m != emitting {
			t.Fatalf("%d bytes of %d, emitted: %v, of %d", m, len(piece), emit, emitting)
		}
		if emit {
			emitted = append(emitted, rest[:m]...)
		}
		rest = rest[m:]
	}
	if s.Held() > 2*MaxKept {
		t.Fatalf("%d bytes held", s.Held())
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

// array has an emitted field whose length has two bytes, in a message, and all wire types behind it.
func array() []byte {
	inner := protowire.AppendString(tag(nil, 4, protowire.BytesType), "name")
	inner = protowire.AppendBytes(tag(inner, 5, protowire.BytesType), elements)
	b := protowire.AppendVarint(tag(nil, 1, protowire.VarintType), 1<<40)
	b = protowire.AppendBytes(tag(b, 3, protowire.BytesType), inner)
	b = protowire.AppendString(tag(b, 300, protowire.BytesType), "abc")
	b = protowire.AppendFixed64(tag(b, 7, protowire.Fixed64Type), 1)
	b = protowire.AppendFixed32(tag(b, 7, protowire.Fixed32Type), 2)
	b = protowire.AppendBytes(tag(b, 3, protowire.BytesType), nil)
	return protowire.AppendBytes(tag(b, 5, protowire.BytesType), nil)
}

var elements = bytes.Repeat([]byte("x"), 300)

const arrayNotes = `number 1 1099511627776; field 3 309; field 304 4; kept 304 "name"; field 305 300; leave 3; ` +
	`field ff 3; number 7 1; number 7 2; field 3 0; leave 3; field 5 0`

// Every cut of a message gives the same fields, whether Next reads the emitted bytes or the user takes them.
func TestCuts(t *testing.T) {
	s := new(Scanner)
	for _, m := range []struct {
		message        []byte
		notes, emitted string
	}{{sample(), sampleNotes, "emitted"}, {array(), arrayNotes, string(elements)}} {
		for size := range len(m.message) {
			for _, take := range []bool{false, true} {
				notes, emitted, broken := read(t, s, m.message, len(m.message), size, take)
				if notes != m.notes || string(emitted) != m.emitted || broken {
					t.Errorf("in pieces of %d bytes, taken %v: %q, broken %v, %s", size, take, emitted, broken, notes)
				}
			}
		}
	}
}

// A message that is none is skipped from there on, and the Scanner goes on with the next one.
func TestBroken(t *testing.T) {
	s := new(Scanner)
	long := protowire.AppendBytes(tag(nil, 3, protowire.BytesType), []byte{1<<3 | 2, 9})
	for name, b := range map[string][]byte{
		"field 0":                      {2, 1, 0},
		"a group":                      tag(nil, 1, protowire.StartGroupType),
		"a varint of 11 bytes":         append([]byte{8}, bytes.Repeat([]byte{0x80}, 11)...),
		"a varint of 65 bits":          append(append([]byte{8}, bytes.Repeat([]byte{0xff}, 9)...), 2),
		"longer than its message":      append(long, make([]byte, 20)...),
		"a number beyond its message":  append(protowire.AppendBytes(tag(nil, 3, protowire.BytesType), []byte{1<<3 | 1}), make([]byte, 20)...),
		"a length of nearly 2^64":      append(append([]byte{5<<3 | 2}, bytes.Repeat([]byte{0xff}, 9)...), 1),
		"a length of 2^63":             {5<<3 | 2, 255, 255, 255, 255, 255, 255, 255, 255, 127, 1, 1},
		"a length that lies":           {5<<3 | 2, 100, 1, 2},
		"a length beyond its message":  {3<<3 | 2, 3, 5<<3 | 2, 5, 1, 0, 0, 0, 0},
		"a tag alone in a message":     {3<<3 | 2, 1, 8, 8, 1},
		"a length outside its message": {3<<3 | 2, 1, 5<<3 | 2, 8, 1},
		"a tag of more than 32 bits":   {0xfa, 0xff, 0xff, 0xff, 0x7f, 0},
		"a field number of 2^29 is 11": {0x80, 0x80, 0x80, 0x80, 0x10, 0},
	} {
		for _, size := range []int{1, 3} {
			if _, emitted, broken := read(t, s, b, len(b), size, false); !broken || emitted != nil || s.Emitting() != 0 || s.Rest() != 0 {
				t.Errorf("%s: %q, broken %v, %d bytes left", name, emitted, broken, s.Rest())
			}
		}
	}
	if notes, _, broken := read(t, s, sample(), len(sample()), 1, false); notes != sampleNotes || broken {
		t.Errorf("the next message: broken %v, %s", broken, notes)
	}
}

// A message whose last field is cut short tells nothing of it, and the Scanner goes on with the next one.
func TestCutShort(t *testing.T) {
	s := new(Scanner)
	for name, b := range map[string][]byte{
		"a varint":        {8, 128},
		"a tag":           {8},
		"a fixed64":       {9, 1, 2},
		"a length":        {5<<3 | 2, 200},
		"a nested varint": {3<<3 | 2, 2, 8, 128},
	} {
		if notes, emitted, _ := read(t, s, b, len(b), 0, false); strings.Contains(notes, "number") || strings.Contains(notes, "leave") || emitted != nil {
			t.Errorf("%s: %q, %s", name, emitted, notes)
		}
		if notes, _, broken := read(t, s, sample(), len(sample()), 0, false); notes != sampleNotes || broken {
			t.Errorf("the message after %s: broken %v, %s", name, broken, notes)
		}
	}
	for n := range sample() {
		read(t, s, sample()[:n], len(sample()), 0, false)
		if notes, _, broken := read(t, s, sample(), len(sample()), 0, false); notes != sampleNotes || broken {
			t.Errorf("the message after %d bytes of one: broken %v, %s", n, broken, notes)
		}
	}
}

// A field too long to be kept is skipped, and messages too deep are as well.
func TestLimits(t *testing.T) {
	s := new(Scanner)
	b := protowire.AppendBytes(tag(nil, 4, protowire.BytesType), make([]byte, MaxKept+1))
	if notes, _, broken := read(t, s, b, len(b), 1000, false); strings.Contains(notes, "kept") || broken || s.Held() > 0 {
		t.Errorf("broken %v, %d bytes held: %s", broken, s.Held(), notes)
	}
	b = protowire.AppendBytes(tag(nil, 4, protowire.BytesType), make([]byte, MaxKept))
	if notes, _, broken := read(t, s, b, len(b), 1000, false); !strings.Contains(notes, "kept") || broken || s.Held() < MaxKept {
		t.Errorf("broken %v, %d bytes held: %s", broken, s.Held(), notes)
	}
	deep := []byte("x")
	for range 2000 {
		deep = protowire.AppendBytes(tag(nil, 3, protowire.BytesType), deep)
	}
	if notes, _, broken := read(t, s, deep, len(deep), 0, false); strings.Count(notes, "field") != maxDepth+1 || broken {
		t.Errorf("broken %v: %s", broken, notes)
	}
}

func TestLeads(t *testing.T) {
	if p := Of(1, 2); !p.Leads(Of(1, 2)) || !p.Leads(Of(1, 2, 3)) || p.Leads(Of(1)) || p.Leads(Of(1, 3, 3)) || p.Leads(Of(2, 2)) {
		t.Error("a path leads elsewhere")
	}
}

// No bytes make a Scanner panic, depend on how they are cut or taken, or tell of bytes that have not come.
func FuzzNext(f *testing.F) {
	f.Add(sample(), 0)
	f.Add(array(), 0)
	f.Add([]byte{5<<3 | 2, 100, 1, 2}, 0)
	f.Add([]byte{5<<3 | 2, 100, 1, 2}, 50)
	f.Add([]byte{5<<3 | 2, 100, 1, 2}, 98)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		if more < 0 || more > 1<<20 {
			return
		}
		s := new(Scanner)
		notes, emitted, broken := read(t, s, b, len(b)+more, 0, false)
		for _, size := range []int{0, 1, 3, 5} {
			for _, take := range []bool{false, true} {
				if n, e, x := read(t, s, b, len(b)+more, size, take); n != notes || !bytes.Equal(e, emitted) || x != broken {
					t.Errorf("in pieces of %d bytes, taken %v: %s, else %s", size, take, n, notes)
				}
			}
		}
	})
}
