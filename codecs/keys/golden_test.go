package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A vector is a file of testdata with the parts keys and bytes. With a dtype, the keys are the elements of a block for
// the element codec; without, they are given to the Coding itself. Of a corrupt encoding there are only bytes, and n.
type vector struct {
	header map[string]string
	keys   []uint64
	bytes  []byte
}

// A coded is a Coding, or an element codec of a dtype, as functions of the same type.
type coded struct {
	encode func(keys []uint64) ([]byte, error)
	decode func(n int, b []byte) ([]uint64, error)
}

func (v vector) coded(t *testing.T) coded {
	t.Helper()
	a, err := codecs.ParseText(v.header["coding"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(a)
	if err != nil {
		t.Fatal(err)
	}
	if v.header["dtype"] == "" {
		return coded{
			func(keys []uint64) ([]byte, error) { return c.Append(nil, keys), nil },
			func(n int, b []byte) ([]uint64, error) {
				keys := make([]uint64, n)
				used, err := c.Decode(keys, b)
				if err == nil && used != len(b) {
					t.Errorf("%d of %d bytes", used, len(b))
				}
				return keys, err
			},
		}
	}
	d, ok := tensor.ParseDType(v.header["dtype"])
	if !ok {
		t.Fatalf("unknown dtype %q", v.header["dtype"])
	}
	return elementsCoded(t, c, d)
}

func elementsCoded(t *testing.T, c Coding, d tensor.DType) coded {
	size := d.Size()
	return coded{
		func(keys []uint64) ([]byte, error) {
			e, err := New(c).NewEncoder(d, len(keys))
			if err != nil {
				t.Fatal(err)
			}
			var src []byte
			for _, k := range keys {
				src = append(src, binary.LittleEndian.AppendUint64(nil, k)[:size]...)
			}
			return e.Append(nil, src)
		},
		func(n int, b []byte) ([]uint64, error) {
			dec, err := New(c).NewDecoder(d, n)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, n*size)
			err = dec.Decode(dst, b)
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = binary.LittleEndian.Uint64(append(slices.Clone(dst[i*size:(i+1)*size]), 0, 0, 0, 0))
			}
			return keys, err
		},
	}
}

// The files of testdata define the wire form: encoders make these bytes, and decoders read them and refuse broken ones.
func testGoldenVectors(t *testing.T) {
	codectest.EachVector(t, "testdata", []string{"coding", "expect"}, []string{"keys", "bytes"}, func(t *testing.T, file codectest.Vector) {
		v := vector{file.Header, codectest.Integers(t, file.Lines("keys")), codectest.HexBytes(t, file.Lines("bytes"))}
		c := v.coded(t)
		kind, why, _ := strings.Cut(v.header["expect"], ", ")
		switch kind {
		case "ok":
			if b, err := c.encode(v.keys); err != nil || !bytes.Equal(b, v.bytes) {
				t.Errorf("encoded as\n% x, %v; want\n% x", b, err, v.bytes)
			}
			if keys, err := c.decode(len(v.keys), v.bytes); err != nil || !slices.Equal(keys, v.keys) {
				t.Errorf("decoded as\n%d, %v; want\n%d", keys, err, v.keys)
			}
		case "unsuited":
			if b, err := c.encode(v.keys); !errors.Is(err, codecs.ErrUnsuited) || !strings.Contains(err.Error(), why) {
				t.Errorf("encoded as % x, %v; want an ErrUnsuited that says %q", b, err, why)
			}
		case "corrupt":
			n, err := strconv.Atoi(v.header["n"])
			if err != nil {
				t.Fatal(err)
			}
			keys, err := c.decode(n, v.bytes)
			if !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), why) {
				t.Errorf("decoded as %d, %v; want an ErrCorrupt that says %q", keys, err, why)
			}
		default:
			t.Errorf("unknown expectation %q", kind)
		}
	})
}
