package tunnel

import (
	"encoding/hex"
	"strings"
	"testing"
)

// The bytes of the package comment's layout, by hand.
func TestWireLayout(t *testing.T) {
	for want, h := range map[string]header{
		"0003fffd 04 01 000000000005 0000000102030405": {length: 0x3fffd, kind: kindData, flags: flagFin, stream: 5, value: 0x102030405},
		"00000008 05 00 ffffffffffff 3fffffffffffffff": {length: 8, kind: kindWindow, stream: maxStream, value: maxOffset - 1},
		"00000000 08 00 000000000000 ffffffffffffffff": {kind: kindPing, value: 1<<64 - 1},
	} {
		got := h.append(nil)
		if want = strings.ReplaceAll(want, " ", ""); hex.EncodeToString(got) != want {
			t.Errorf("%v: %x, not %s", h.kind, got, want)
		}
		if again, err := parseHeader((*[headerLen]byte)(got), maxBody); err != nil || again != h {
			t.Errorf("%x is read as %+v, %v", got, again, err)
		}
	}
	h := &hello{min: 1, max: 2, name: "paris", maxBody: 0x40000, streams: 7, window: 0x10000, codecs: []string{"3lc"},
		place: place{slot: 1, replace: true, generation: 258}, pads: true, short: true}
	copy(h.mine[:], "0123456789abcdef")
	want := hex.EncodeToString([]byte("gradprox")) + "0001 0002" +
		"0001 0005" + hex.EncodeToString([]byte("paris")) +
		"0002 0010" + hex.EncodeToString([]byte("0123456789abcdef")) +
		"0003 0010" + strings.Repeat("00", 16) +
		"0004 0004 00040000" + "0005 0004 00000007" + "0006 0004 00010000" +
		"0007 0003" + hex.EncodeToString([]byte("3lc")) +
		"0008 000a 01 01 0000000000000102" + "0009 0000" + "000a 0000"
	if got := hex.EncodeToString(h.append(nil)); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("HELLO is\n%s, not\n%s", got, want)
	}
}

func TestHelloErrors(t *testing.T) {
	good := func() *hello {
		return &hello{min: 1, max: 1, name: "paris", mine: incarnation{1}, maxBody: maxBody, streams: 1, window: minWindow}
	}
	for _, c := range []struct {
		want string
		body []byte
	}{
		{"not a gradproxy tunnel", []byte("GET / HTTP/1.1")},
		{"not a gradproxy tunnel", []byte("gradprox")},
		{"versions 2 to 1", func() []byte { h := good(); h.min = 2; return h.append(nil) }()},
		{"a name of 0 bytes", func() []byte { h := good(); h.name = ""; return h.append(nil) }()},
		{"of UTF-8", func() []byte { h := good(); h.name = "\xff"; return h.append(nil) }()},
		{"zero incarnation", func() []byte { h := good(); h.mine = incarnation{}; return h.append(nil) }()},
		{"field 4 is 1,", func() []byte { h := good(); h.maxBody = 1; return h.append(nil) }()},
		{"field 5 is 0,", func() []byte { h := good(); h.streams = 0; return h.append(nil) }()},
		{"field 6 is 9,", func() []byte { h := good(); h.window = 9; return h.append(nil) }()},
		{"carrier slot 16", func() []byte { h := good(); h.place.slot = 16; return h.append(nil) }()},
		{"more than 256 codecs", func() []byte { h := good(); h.codecs = make([]string, 257); return h.append(nil) }()},
		{"of more than 64 bytes", func() []byte { h := good(); h.codecs = []string{strings.Repeat("x", 65)}; return h.append(nil) }()},
		{"field 1 twice", append(good().append(nil), 0, 1, 0, 1, 'x')},
		{"ends within a field", append(good().append(nil), 0, 99, 0)},
		{"field 99 of 9 bytes where 1 are left", append(good().append(nil), 0, 99, 0, 9, 1)},
		{"field 8 of 0 bytes", append([]byte("gradprox\x00\x01\x00\x01"), 0, 8, 0, 0)},
		{"without field 2", []byte("gradprox\x00\x01\x00\x01\x00\x01\x00\x01x")},
	} {
		if _, err := parseHello(c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// The set of seen ids agrees with a map, whatever the order, and forgets the ids behind.
func TestIDSet(t *testing.T) {
	var s idSet
	for i := range uint64(10000) {
		n := i ^ 0x2a5 // any order within a thousand
		if s.has(n) {
			t.Fatalf("%d is there before it was added", n)
		}
		s.add(n)
		if !s.has(n) {
			t.Fatalf("%d is not there", n)
		}
		if len(s.words) > 17 {
			t.Fatalf("%d words for ids that span 1,024", len(s.words))
		}
	}
	for _, even := range []bool{true, false} {
		for n := range uint64(10) {
			if m, e := ordinal(streamID(n, even)); m != n || e != even {
				t.Errorf("stream %d of even %v is read as %d of %v", n, even, m, e)
			}
		}
	}
}
