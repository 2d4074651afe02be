package keys

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

// FuzzDecode: any bytes are ascending keys or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	for i, c := range every() {
		for _, keys := range samples() {
			if n := len(keys); n <= 100 {
				f.Add(c.Append(nil, keys), uint16(n), byte(i))
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, n uint16, which byte) {
		c := every()[int(which)%len(every())]
		keys := make([]uint64, n)
		used, err := c.Decode(keys, src)
		if err != nil {
			if !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if !ascending(keys) || used < 0 || used > len(src) {
			t.Fatalf("%v: %d of %d bytes are %d, which do not ascend", c, used, len(src), keys)
		}
		again := c.Append(nil, keys) // the keys are as good as any
		back := make([]uint64, n)
		if _, err := c.Decode(back, again); err != nil || !slices.Equal(back, keys) {
			t.Fatalf("%v: %d: decoded, encoded and decoded: %d, %v", c, keys, back, err)
		}
	})
}

// FuzzRoundTrip: for all gaps, every coding returns the keys.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0xff, 0xff, 0xff}, byte(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9}, byte(7))
	f.Fuzz(func(t *testing.T, gaps []byte, width byte) {
		w := 1 + int(width%8)
		var keys []uint64
		last := uint64(0)
		for len(gaps) >= w {
			var b [8]byte
			copy(b[:], gaps[:w])
			gaps = gaps[w:]
			key := last + binary.LittleEndian.Uint64(b[:])
			if key < last || len(keys) > 0 && key == last {
				break
			}
			keys, last = append(keys, key), key
		}
		for _, c := range every() {
			b := c.Append(nil, keys)
			if len(b) > c.MaxLen(len(keys)) {
				t.Fatalf("%v: %d keys take %d bytes, over %d", c, len(keys), len(b), c.MaxLen(len(keys)))
			}
			back := make([]uint64, len(keys))
			if used, err := c.Decode(back, b); err != nil || used != len(b) || !slices.Equal(back, keys) {
				t.Fatalf("%v: %d became %d, %v", c, keys, back, err)
			}
		}
	})
}
