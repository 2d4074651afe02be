package nvflaresim

import (
	"encoding/binary"
	"fmt"
)

// A Map is the keys and values of a map, in turn. Keys are strings.
type Map []any

// Pack writes a value in MessagePack, in its shortest form: a string, int, bool, []byte, []any or Map.
func Pack(v any) []byte { return pack(nil, v) }

func pack(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return append(packLength(b, len(v), forms{short: 0xa0, shortMax: 31, byte: 0xd9, word: 0xda, long: 0xdb}), v...)
	case int:
		return packInt(b, v)
	case bool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case []byte:
		return append(packLength(b, len(v), forms{shortMax: -1, byte: 0xc4, word: 0xc5, long: 0xc6}), v...)
	case []any:
		b = packLength(b, len(v), forms{short: 0x90, shortMax: 15, word: 0xdc, long: 0xdd})
		for _, x := range v {
			b = pack(b, x)
		}
	case Map:
		b = packLength(b, len(v)/2, forms{short: 0x80, shortMax: 15, word: 0xde, long: 0xdf})
		for _, x := range v {
			b = pack(b, x)
		}
	default:
		panic(fmt.Sprintf("nvflaresim: a %T cannot be packed", v))
	}
	return b
}

// forms are the first bytes of a kind of value, by the width of its length.
type forms struct {
	short    byte // with the length in its low bits
	shortMax int  // the maximum that short holds; -1: there is no such form
	byte     byte // 0: there is no such form
	word     byte
	long     byte
}

// packLength writes the first byte of a value, and its length.
func packLength(b []byte, n int, f forms) []byte {
	switch {
	case n <= f.shortMax:
		return append(b, f.short|byte(n))
	case n < 1<<8 && f.byte != 0:
		return append(b, f.byte, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, f.word), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, f.long), uint32(n))
}

// packInt writes an integer.
func packInt(b []byte, v int) []byte {
	switch {
	case v < 0:
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(v))
}

// unpack reads a value that Pack wrote, with a map[string]any for Map, and returns the bytes behind it.
func unpack(b []byte) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errMessage
	}
	first := b[0]
	b = b[1:]
	switch {
	case first < 0x80:
		return int(first), b, nil
	case first == 0xc2, first == 0xc3:
		return first == 0xc3, b, nil
	case first == 0xd3:
		return unpackInt(b, 8)
	case first >= 0xcc && first <= 0xcf:
		return unpackInt(b, 1<<(first-0xcc))
	case first < 0x90:
		return unpackMap(int(first&0x0f), b)
	case first < 0xa0:
		return unpackList(int(first&0x0f), b)
	case first < 0xc0:
		return unpackText(int(first&0x1f), b)
	}
	return unpackLong(first, b)
}

// unpackLong reads a value whose length stands behind its first byte.
func unpackLong(first byte, b []byte) (any, []byte, error) {
	width := map[byte]int{0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4}[first]
	n, b, err := unpackInt(b, width)
	if err != nil || width == 0 {
		return nil, nil, errMessage
	}
	switch length := n.(int); {
	case first <= 0xc6:
		if length > len(b) {
			return nil, nil, errMessage
		}
		return b[:length], b[length:], nil
	case first <= 0xdb:
		return unpackText(length, b)
	case first <= 0xdd:
		return unpackList(length, b)
	default:
		return unpackMap(length, b)
	}
}

// unpackInt reads width bytes.
func unpackInt(b []byte, width int) (any, []byte, error) {
	if len(b) < width {
		return nil, nil, errMessage
	}
	n := 0
	for _, c := range b[:width] {
		n = n<<8 | int(c)
	}
	return n, b[width:], nil
}

func unpackText(n int, b []byte) (any, []byte, error) {
	if n > len(b) {
		return nil, nil, errMessage
	}
	return string(b[:n]), b[n:], nil
}

func unpackList(n int, b []byte) (any, []byte, error) {
	var list []any
	for range n {
		v, rest, err := unpack(b)
		if err != nil {
			return nil, nil, err
		}
		list, b = append(list, v), rest
	}
	return list, b, nil
}

func unpackMap(n int, b []byte) (any, []byte, error) {
	m := map[string]any{}
	for range n {
		k, rest, err := unpack(b)
		if err != nil {
			return nil, nil, err
		}
		key, ok := k.(string)
		if !ok {
			return nil, nil, errMessage
		}
		if m[key], b, err = unpack(rest); err != nil {
			return nil, nil, err
		}
	}
	return m, b, nil
}

// A tree is a value of a map, or nil.
type tree struct{ value any }

// at returns the value below keys.
func (t tree) at(keys ...string) tree {
	for _, k := range keys {
		m, _ := t.value.(map[string]any)
		t = tree{m[k]}
	}
	return t
}

func (t tree) text() string { s, _ := t.value.(string); return s }
func (t tree) number() int  { n, _ := t.value.(int); return n }
