package tunnel

import (
	"fmt"
	"strings"
	"testing"
)

// The bounds of each kind of record: the package comment's table once more, so that neither changes alone.
var recordRules = []struct {
	kind             kind
	minimum, maximum int
	none, one        bool // for no stream, for one
	fin, anyWord     bool // may have the flag; its value may be over 2^62
}{
	{kind: kindHello, maximum: 32 << 10, none: true},
	{kind: kindReady, minimum: 16, maximum: 16, none: true},
	{kind: kindEnd, maximum: 1 << 10, none: true},
	{kind: kindData, minimum: 1, maximum: 256 << 10, one: true, fin: true},
	{kind: kindWindow, minimum: 8, maximum: 8, none: true, one: true},
	{kind: kindReset, minimum: 4, maximum: 4, one: true},
	{kind: kindDone, one: true},
	{kind: kindPing, none: true, anyWord: true},
	{kind: kindPong, none: true, anyWord: true},
	{kind: kindGoAway, none: true},
	{kind: kindLeave, none: true},
	{kind: kindPad, maximum: 4 << 10, none: true},
}

// Every kind at and beyond each of its bounds: a record within is read as it was written, one beyond is an error
// that names the kind and the fault.
func TestRecordBounds(t *testing.T) {
	for _, r := range recordRules {
		stream := uint64(0)
		if !r.none {
			stream = maxStream
		}
		good := header{kind: r.kind, length: r.minimum, stream: stream, value: maxOffset - 1}
		check := func(want string, h header) {
			t.Helper()
			b := h.append(nil)
			got, err := parseHeader((*[headerLen]byte)(b), maxBody)
			switch {
			case want == "" && (err != nil || got != h):
				t.Errorf("%+v is read as %+v, %v", h, got, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), r.kind.String()) || !strings.Contains(err.Error(), want)):
				t.Errorf("%+v: %v, nothing of %q", h, err, want)
			}
		}
		with := func(change func(h *header)) header {
			h := good
			change(&h)
			return h
		}
		lengths := fmt.Sprintf("not %d to %d", r.minimum, r.maximum)
		if r.kind == kindData {
			lengths = fmt.Sprintf("not 0 to %d", r.maximum)
		}
		check("", good)
		check("", with(func(h *header) { h.length = r.maximum }))
		check(lengths, with(func(h *header) { h.length = r.maximum + 1 }))
		check(lengths, with(func(h *header) { h.length = 1<<32 - 1 }))
		switch {
		case r.kind == kindData:
			check("empty DATA", with(func(h *header) { h.length = 0 }))
			check("", with(func(h *header) { h.length, h.flags = 0, flagFin }))
		case r.minimum > 0:
			check(lengths, with(func(h *header) { h.length = r.minimum - 1 }))
		}
		for bit := range 8 {
			want := "unknown flags"
			if r.fin && bit == 0 {
				want = ""
			}
			check(want, with(func(h *header) { h.flags = 1 << bit }))
		}
		if !r.none {
			check("for no stream", with(func(h *header) { h.stream = 0 }))
		}
		for _, id := range []uint64{1, maxStream} {
			want := "for stream"
			if r.one {
				want = ""
			}
			check(want, with(func(h *header) { h.stream = id }))
		}
		for _, value := range []uint64{maxOffset, 1<<64 - 1} {
			want := "over 2^62"
			if r.anyWord {
				want = ""
			}
			check(want, with(func(h *header) { h.value = value }))
		}
	}
}

// The limit on DATA is the one that was agreed, and in the handshake there is none of it.
func TestDataLimit(t *testing.T) {
	for _, limit := range []int{0, minMaxBody, maxBody} {
		for length, ok := range map[int]bool{limit: true, limit + 1: false} {
			b := header{kind: kindData, flags: flagFin, stream: 1, length: length}.append(nil)
			if _, err := parseHeader((*[headerLen]byte)(b), limit); (err == nil) != ok {
				t.Errorf("%d bytes of %d: %v", length, limit, err)
			}
		}
	}
}

// There are no other kinds.
func TestUnknownKinds(t *testing.T) {
	known := map[kind]bool{}
	for _, r := range recordRules {
		known[r.kind] = true
		if name := r.kind.String(); strings.HasPrefix(name, "kind ") {
			t.Errorf("kind %d has no name", uint8(r.kind))
		}
	}
	for k := range 256 {
		if known[kind(k)] {
			continue
		}
		for _, stream := range []uint64{0, 1} {
			b := header{kind: kind(k), stream: stream}.append(nil)
			if _, err := parseHeader((*[headerLen]byte)(b), maxBody); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown record of kind %d", k)) {
				t.Errorf("kind %d: %v", k, err)
			}
		}
	}
}

// A header with one bit flipped is never read as the one that was written.
func TestFlippedBits(t *testing.T) {
	for _, r := range recordRules {
		stream := uint64(1)
		if !r.one {
			stream = 0
		}
		h := header{kind: r.kind, length: r.maximum, stream: stream, value: 1 << 20}
		for bit := range 8 * headerLen {
			b := h.append(nil)
			b[bit/8] ^= 1 << (bit % 8)
			if got, err := parseHeader((*[headerLen]byte)(b), maxBody); err == nil && got == h {
				t.Errorf("%v: bit %d is not looked at", r.kind, bit)
			}
		}
	}
}
