package tunnel

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

func goodHello() *hello {
	return &hello{min: 1, max: 3, name: "paris", mine: incarnation{1}, yours: incarnation{2}, maxBody: minMaxBody, streams: 1, window: minWindow,
		codecs: []string{"lossless", "3lc(s=1.75)"}, place: place{slot: maxSlots - 1, replace: true, generation: 1<<64 - 1}}
}

// field returns one field of a HELLO.
func field(id uint16, value ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// A HELLO at the bounds of all its fields is read as it was written.
func TestHelloRoundTrip(t *testing.T) {
	for name, change := range map[string]func(h *hello){
		"least": func(*hello) {},
		"most": func(h *hello) {
			h.min, h.max = 0, 1<<16-1
			h.name = strings.Repeat("n", maxName)
			h.maxBody, h.streams, h.window = 1<<30, 1<<30, 1<<30
			h.codecs = nil
			for range maxCodecs {
				h.codecs = append(h.codecs, strings.Repeat("c", maxCodecName))
			}
		},
		"a codec twice": func(h *hello) { h.codecs = []string{"a", "a", ""} },
		"first contact": func(h *hello) { h.yours, h.codecs, h.place = incarnation{}, nil, place{} },
	} {
		h := goodHello()
		change(h)
		b := h.append([]byte("before"))
		if len(b) > maxHello || string(b[:6]) != "before" {
			t.Errorf("%s: %d bytes", name, len(b))
		}
		if again, err := parseHello(b[6:]); err != nil || !reflect.DeepEqual(again, h) {
			t.Errorf("%s: %+v is read as %+v, %v", name, h, again, err)
		}
	}
	b := goodHello().append(nil)
	h, err := parseHello(b)
	clear(b)
	if err != nil || !reflect.DeepEqual(h, goodHello()) {
		t.Errorf("%+v keeps bytes that it does not own, or %v", h, err)
	}
}

// A HELLO that is cut short is an error, but where a field ends behind the last one that has to be there.
func TestHelloTruncated(t *testing.T) {
	h := goodHello()
	h.codecs = nil
	whole := h.append(nil)
	complete := len(whole) - len(field(fieldPlace, make([]byte, 10)...))
	for n := range whole {
		_, err := parseHello(whole[:n:n])
		if ok := n == complete; (err == nil) != ok {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}

// Each field that has to be there is missed, each that may be there once is refused the second time, and a value that
// is too short is not read beyond its end.
func TestHelloFields(t *testing.T) {
	head := []byte("gradprox\x00\x01\x00\x01")
	values := map[uint16][]byte{
		fieldName: []byte("p"), fieldIncarnation: []byte("0123456789abcdef"), fieldEcho: make([]byte, 16),
		fieldMaxBody: {0, 0, 0x40, 0}, fieldStreams: {0, 0, 0, 1}, fieldWindow: {0, 0, 0x40, 0}, fieldPlace: make([]byte, 10),
	}
	build := func(leave uint16, extra ...byte) []byte {
		b := append([]byte(nil), head...)
		for id, v := range values {
			if id != leave {
				b = append(b, field(id, v...)...)
			}
		}
		return append(b, extra...)
	}
	check := func(what string, b []byte, want string) {
		t.Helper()
		_, err := parseHello(b)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, not %q", what, err, want)
		}
	}
	check("all", build(0), "")
	for id, v := range values {
		what := string('0' + rune(id))
		missing := "HELLO without field " + what
		if id == fieldEcho || id == fieldPlace {
			missing = ""
		}
		check("without "+what, build(id), missing)
		check("twice "+what, build(0, field(id, v...)...), "HELLO field "+what+" twice")
		if id == fieldName {
			continue
		}
		check("longer "+what, build(id, field(id, append(v[:len(v):len(v)], "of a later version"...)...)...), "")
		for n := range v {
			check("shorter "+what, build(id, field(id, v[:n]...)...), "HELLO field "+what+" of ")
		}
	}
	for id, b := range map[uint16][2][]byte{ // the least that is taken, and less
		fieldMaxBody: {{0, 0, 0x40, 0}, {0, 0, 0x3f, 0xff}},
		fieldStreams: {{0, 0, 0, 1}, {0, 0, 0, 0}},
		fieldWindow:  {{0, 0, 0x40, 0}, {0, 0, 0x3f, 0xff}},
	} {
		what := string('0' + rune(id))
		check("least "+what, build(id, field(id, b[0]...)...), "")
		check("less "+what, build(id, field(id, b[1]...)...), "HELLO field "+what+" is ")
	}
	check("unknown", build(0, append(field(90, 1, 2, 3), field(1<<16-1)...)...), "")
	check("unknown twice", build(0, append(field(90), field(90)...)...), "")
	check("field 0", build(0, field(0)...), "")
	for flags, replace := range map[byte]bool{0: false, 1: true, 0xfe: false, 0xff: true} { // the others are a later version's
		h, err := parseHello(build(fieldPlace, field(fieldPlace, 0, flags, 0, 0, 0, 0, 0, 0, 0, 0)...))
		if err != nil || h.place.replace != replace {
			t.Errorf("flags %#x of a place: %+v, %v", flags, h, err)
		}
	}
}

// Two sides use the newest version that both speak, whoever asks; if there is none the error names both sides'
// versions.
func TestAgree(t *testing.T) {
	for _, c := range []struct{ a, b, c, d, want uint16 }{ // mine, theirs; 0: none
		{1, 1, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 3, 2, 5, 3}, {2, 9, 1, 4, 4}, {1, 2, 2, 3, 2}, {1, 65535, 65535, 65535, 65535},
		{1, 1, 2, 2, 0}, {3, 4, 1, 2, 0}, {1, 2, 3, 65535, 0},
	} {
		mine, theirs := &hello{min: c.a, max: c.b}, &hello{min: c.c, max: c.d, name: "pa\nris"}
		for range 2 {
			v, err := agree(mine, theirs)
			if v != c.want || (err == nil) != (c.want != 0) {
				t.Errorf("%d to %d with %d to %d: %d, %v", mine.min, mine.max, theirs.min, theirs.max, v, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "upgrade the older one") || strings.Contains(err.Error(), "\n")) {
				t.Error(err)
			}
			mine, theirs = theirs, mine
		}
	}
}
