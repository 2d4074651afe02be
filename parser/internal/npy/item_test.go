package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"unsafe"

	"github.com/gradproxy/gradproxy/tensor"
)

// zipOf returns a ZIP file as numpy.savez writes it, with one member; wide: its sizes are in the extra field.
func zipOf(name string, member []byte, wide bool) []byte {
	sum := crc32.ChecksumIEEE(member)
	head := func(signature string, at int) []byte {
		b := append([]byte(signature), 45, 0)
		if signature[2] == 1 {
			b = append(b, 45, 0)
		}
		b = append(b, 0, 0, 0, 0, 0, 0, 0x21, 0)
		b = binary.LittleEndian.AppendUint32(b, sum)
		size := uint32(len(member))
		if wide && at < 0 {
			size = 1<<32 - 1
		}
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, size), size)
		return binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	}
	b := head("PK\x03\x04", -1)
	if wide {
		b = binary.LittleEndian.AppendUint16(b, 20)
	} else {
		b = append(b, 0, 0)
	}
	b = append(b, name...)
	if wide {
		b = append(b, 1, 0, 16, 0)
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(len(member))), uint64(len(member)))
	}
	b = append(b, member...)
	at := len(b)
	b = append(append(b, head("PK\x01\x02", 0)...), make([]byte, 16)...)
	b = append(b, name...)
	n := len(b) - at
	b = append(b, "PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return append(binary.LittleEndian.AppendUint32(b, uint32(at)), 0, 0)
}

// safetensorsOf returns a safetensors file with that header and n bytes of elements.
func safetensorsOf(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

// itemOf reads a file that comes in pieces of step bytes.
func itemOf(b []byte, size, step int) *Item {
	var i Item
	i.Begin(size)
	for len(b) > 0 {
		n := min(step, len(b))
		i.Feed(b[:n])
		b = b[n:]
	}
	return &i
}

func TestItems(t *testing.T) {
	member := file(1, dict("<f4", "False", "3, 5"), 60)
	flagged := zipOf("T0.npy", member, true)
	flagged[6] |= 8
	packed := zipOf("T0.npy", member, true)
	packed[8] = 8
	lying := zipOf("T0.npy", member, true)
	lying[30+6+4] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		kind Container
		want []Member
	}{
		"ZIP":              {zipOf("T0.npy", member, true), Zip, []Member{{"T0", tensor.Float32, 30 + 6 + 20 + 128, 60, "3×5"}}},
		"a narrow ZIP":     {zipOf("a.npy", member, false), Zip, []Member{{"a", tensor.Float32, 30 + 5 + 128, 60, "3×5"}}},
		"sizes that come":  {flagged, Zip, nil},
		"compressed":       {packed, Zip, nil},
		"a size that lies": {lying, Zip, nil},
		"no .npy":          {zipOf("T0.txt", []byte("a text of some length"), true), Zip, nil},
		"safetensors": {safetensorsOf(`{"T1":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"T0":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}`, 16), Safetensors,
			[]Member{{"T0", tensor.Int32, 8 + 112, 4, "scalar"}, {"T1", tensor.BFloat16, 8 + 112 + 4, 12, "2×3"}}},
		"with metadata":          {safetensorsOf(`{"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), Safetensors, []Member{{"x", tensor.Float32, 8 + 85, 4, "1"}}},
		"a shape that lies":      {safetensorsOf(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), NoContainer, nil},
		"offsets that lie":       {safetensorsOf(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), NoContainer, nil},
		"a shape without bounds": {safetensorsOf(`{"x":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,4]}}`, 4), NoContainer, nil},
		"arrays that overlap":    {safetensorsOf(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 8), NoContainer, nil},
		"no JSON":                {safetensorsOf(`{"x":`, 4), NoContainer, nil},
		"something else":         {bytes.Repeat([]byte("x"), 500), NoContainer, nil},
		"a long header":          {safetensorsOf("{"+string(bytes.Repeat([]byte(" "), MaxItemHeader))+"}", 4), NoContainer, nil},
	} {
		for _, step := range []int{1, 37, len(c.b)} {
			i := itemOf(c.b, len(c.b), step)
			if got := i.Members(); !i.Done() || i.Kind() != c.kind || len(got) != len(c.want) || fmt.Sprint(got) != fmt.Sprint(c.want) && len(got) > 0 {
				t.Errorf("%s, in pieces of %d bytes: kind %d, %+v, want %+v", name, step, i.Kind(), got, c.want)
			}
		}
		if n := itemOf(c.b, len(c.b), 1).Held(); n > 3*MaxItemHeader {
			t.Errorf("%s: %d bytes are held", name, n)
		}
	}
}

// However a file is cut, it has the same arrays, in bounds and apart.
func FuzzItem(f *testing.F) {
	f.Add(zipOf("T0.npy", file(1, dict("<f4", "False", "3, 5"), 60), true), 0)
	f.Add(safetensorsOf(`{"T0":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}`, 0), 12)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		if more < 0 || more > 1<<20 {
			return
		}
		size := len(b) + more
		whole := itemOf(b, size, len(b)+1)
		if cut := itemOf(b, size, 1); fmt.Sprint(cut.Members()) != fmt.Sprint(whole.Members()) || cut.Kind() != whole.Kind() || cut.Done() != whole.Done() {
			t.Fatalf("%+v, else %+v", cut.Members(), whole.Members())
		}
		at := 0
		for _, m := range whole.Members() {
			if m.Off < at || m.Size < 1 && whole.Kind() == Safetensors || m.Off+m.Size > size || m.Size%m.DType.Size() != 0 {
				t.Fatalf("%+v of %d bytes", m, size)
			}
			at = m.Off + m.Size
		}
	})
}

// A short text keeps no longer one in memory.
func TestShortTextsAreCopies(t *testing.T) {
	long := strings.Repeat("x", 100)
	if s := Short(long[:4], 10); s != "xxxx" || unsafe.StringData(s) == unsafe.StringData(long) {
		t.Errorf("%q is a part of the longer text", s)
	}
}
