package protowalk

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A recorder notes everything that it is told. It enters field 2, collects field 3, streams field 4.
type recorder struct {
	log     bytes.Buffer
	entered int
}

func (r *recorder) Field(p Path, size int) Want {
	fmt.Fprintf(&r.log, "%x:%d ", uint64(p), size)
	switch p & 0xff {
	case 2:
		r.entered++
		return Enter
	case 3:
		return Collect
	case 4:
		return Stream
	}
	return Skip
}
func (r *recorder) Varint(p Path, v uint64) { fmt.Fprintf(&r.log, "%x=%d ", uint64(p), v) }
func (r *recorder) Bytes(p Path, b []byte)  { fmt.Fprintf(&r.log, "%x=%q ", uint64(p), b) }
func (r *recorder) End(p Path)              { fmt.Fprintf(&r.log, "/%x ", uint64(p)) }

// walk returns the log of a message that comes in pieces of step bytes, and its streamed bytes.
func walk(t *testing.T, b []byte, size, step int) (log string, streamed []byte, lost bool) {
	t.Helper()
	var s Scanner
	var r recorder
	s.Begin(size, &r)
	for len(b) > 0 && s.Rest() > 0 {
		piece := b[:min(len(b), step, s.Rest())]
		n := min(len(piece), s.Streaming())
		if n > 0 {
			streamed = append(streamed, piece[:n]...)
			s.Take(n)
		} else if n = s.Next(piece); n < 1 || n > len(piece) {
			t.Fatalf("%d bytes taken of %d", n, len(piece))
		}
		b = b[n:]
	}
	if len(r.log.Bytes()) > 1<<20 {
		t.Fatal("a message tells more than it has bytes")
	}
	return r.log.String(), streamed, s.Lost()
}

func message() []byte {
	inner := protowire.AppendTag(nil, 3, protowire.BytesType)
	inner = protowire.AppendString(inner, "name")
	inner = protowire.AppendTag(inner, 4, protowire.BytesType)
	inner = protowire.AppendBytes(inner, bytes.Repeat([]byte("x"), 300))
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, 1<<40)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, inner)
	b = protowire.AppendTag(b, 300, protowire.BytesType) // no Path
	b = protowire.AppendBytes(b, []byte("abc"))
	b = protowire.AppendTag(b, 7, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 1)
	b = protowire.AppendTag(b, 7, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, 1)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, nil)
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return protowire.AppendBytes(b, nil)
}

func TestScannerWalks(t *testing.T) {
	b := message()
	want := `1=1099511627776 2:309 203:4 203="name" 204:300 /2 2:0 /2 4:0 /0 `
	for step := 1; step <= len(b); step++ {
		log, streamed, lost := walk(t, b, len(b), step)
		if log != want || lost || string(streamed) != string(bytes.Repeat([]byte("x"), 300)) {
			t.Fatalf("in pieces of %d bytes: %s, %d bytes streamed, lost %v; want %s", step, log, len(streamed), lost, want)
		}
	}
}

// Bytes that are no message are taken to its end.
func TestScannerLosesItsWay(t *testing.T) {
	for name, b := range map[string][]byte{
		"a length that lies":     {4<<3 | 2, 100, 1, 2},
		"a nested length":        {2<<3 | 2, 3, 3<<3 | 2, 5, 1, 0, 0, 0, 0},
		"a group":                {1<<3 | 3, 1, 2},
		"field 0":                {2, 1, 2},
		"an endless varint":      {8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"a varint cut short":     {8, 128},
		"a key without a value":  {8},
		"a fixed64 cut short":    {9, 1, 2},
		"a length of 2^63":       {4<<3 | 2, 255, 255, 255, 255, 255, 255, 255, 255, 127, 1, 1},
		"a nested key, cut off":  {2<<3 | 2, 1, 8, 8, 1},
		"a nested length of all": {2<<3 | 2, 1, 0x22, 8, 1},
	} {
		if _, streamed, lost := walk(t, b, len(b), 3); !lost || len(streamed) > 0 {
			t.Errorf("%s: lost %v, %d bytes streamed", name, lost, len(streamed))
		}
	}
}

// A message nested without end is skipped where Paths end, and long fields are not collected.
func TestScannerIsBounded(t *testing.T) {
	b := []byte{}
	for range 2000 {
		b = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), b)
	}
	var s Scanner
	var r recorder
	s.Begin(len(b), &r)
	if n := s.Next(b); n != len(b) || r.entered != 8 || s.Held() > 1<<10 {
		t.Errorf("%d of %d bytes, %d messages entered, %d bytes held", n, len(b), r.entered, s.Held())
	}
	long := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), make([]byte, MaxCollected+1))
	s.Begin(len(long), &r)
	if n := s.Next(long); n != len(long) || s.Held() > 2*MaxCollected {
		t.Errorf("%d of %d bytes, %d held", n, len(long), s.Held())
	}
}

// However a message is cut, the same is told, and nothing about bytes beyond its size.
func FuzzScanner(f *testing.F) {
	f.Add(message(), 0)
	f.Add([]byte{4<<3 | 2, 100, 1, 2}, 50)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		if more < 0 || more > 1<<20 || len(b) == 0 {
			return
		}
		log, streamed, lost := walk(t, b, len(b)+more, len(b))
		for _, step := range []int{1, 5} {
			l, s, x := walk(t, b, len(b)+more, step)
			if l != log || !bytes.Equal(s, streamed) || x != lost {
				t.Fatalf("in pieces of %d bytes: %s, else %s", step, l, log)
			}
		}
	})
}
