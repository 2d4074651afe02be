package http2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// Of each field it is known whether the encoder has put it into its table: new ones, but for such as must stay secret,
// and none that are there already.
func TestInsertions(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	var want []bool
	write := func(inserted, secret bool, name, value string) {
		want = append(want, inserted)
		if err := enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: secret}); err != nil {
			t.Fatal(err)
		}
	}
	enc.SetMaxDynamicTableSize(3000)
	for i := range 150 {
		name := fmt.Sprint("name-", i%20)
		write(i < 20, false, name, "value")
		write(true, false, name, fmt.Sprint("value ", i))
		write(false, true, name, strings.Repeat("secret", 50*(i%3)))
		write(false, false, ":method", "GET")
		write(true, false, ":path", fmt.Sprint("/", i))
		if i%20 == 19 {
			break
		}
	}
	got := insertions(nil, block.Bytes())
	for i, inserted := range want {
		if got.has(i) != inserted {
			t.Errorf("field %d is put into the table: %v, want %v", i, got.has(i), inserted)
		}
	}
	if got.has(len(want)) {
		t.Error("a field behind the last is put into the table")
	}
}

// endless is a block whose length of a string has so many bytes that it exceeds 63 bits.
var endless = []byte{0x00, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 'x'}

// A length that no integer holds is an error of the block, as the decoder has it.
func TestEndlessLength(t *testing.T) {
	var l list
	if _, err := l.decode(endless); err == nil {
		t.Error("the block is taken")
	}
}

// Any block that the decoder takes has as many fields as are counted, and no block makes the count go on for ever, or
// need more memory than its fields.
func FuzzInsertions(f *testing.F) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(100)
	for _, h := range []hpack.HeaderField{{Name: ":path", Value: "/a.B/C"}, {Name: "x", Value: strings.Repeat("y", 300)}, {Name: "x", Value: "secret", Sensitive: true}} {
		if err := enc.WriteField(h); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(block.Bytes())
	f.Add([]byte{0x3f, 0xe1, 0x1f, 0x00, 1, 'a', 1, 'b', 0x82})
	f.Add(endless)
	f.Add(append([]byte{0x3f, 0xe1, 0x9f, 0x80, 0x80, 0}, block.Bytes()...)) // a size in more bytes than it needs
	f.Fuzz(func(t *testing.T, b []byte) {
		if set := insertions(nil, b); 64*len(set) > len(b)+64 {
			t.Fatalf("%d fields in %d bytes", 64*len(set), len(b))
		}
		var l list
		if _, err := l.decode(b); err == nil && len(l.kept) != (l.number+63)/64 {
			t.Fatalf("%d fields, of which %d are counted at most", l.number, 64*len(l.kept))
		}
	})
}
