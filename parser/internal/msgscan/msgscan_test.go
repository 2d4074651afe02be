package msgscan

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// A recorder notes everything that it is told, with its path. It streams binary values of 5 bytes or more.
type recorder struct {
	scan *Scanner
	log  strings.Builder
}

func (r *recorder) path() string {
	var b strings.Builder
	for i := range r.scan.Depth() {
		fmt.Fprintf(&b, "/%s", r.scan.Key(i))
	}
	return b.String()
}
func (r *recorder) Text(b []byte)  { fmt.Fprintf(&r.log, "%s=%q ", r.path(), b) }
func (r *recorder) Number(v int64) { fmt.Fprintf(&r.log, "%s=%d ", r.path(), v) }
func (r *recorder) Bool(v bool)    { fmt.Fprintf(&r.log, "%s=%v ", r.path(), v) }
func (r *recorder) Bin(size int) bool {
	fmt.Fprintf(&r.log, "%s=bin%d ", r.path(), size)
	return size >= 5
}

// walk returns the log of a value that comes in pieces of step bytes, and its streamed bytes.
func walk(t *testing.T, b []byte, size, step int) (log string, streamed []byte, lost bool) {
	t.Helper()
	var s Scanner
	r := recorder{scan: &s}
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
	return r.log.String(), streamed, s.Lost()
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Values of every type of the specification (spec.md, "Formats"), in a map of one array.
var every = append(unhex("81 a1 61 dc 00 1c"+ // {"a": [
	"c0 c2 c3 05 e0"+
	"cc ff cd ffff ce ffffffff cf 0000000100000000"+
	"d0 80 d1 8000 d2 80000000 d3 ffffffffffffffff"+
	"ca 3f800000 cb 3ff0000000000000"+
	"a2 6869 d9 02 6869 da 0002 6869 db 00000002 6869"+
	"c4 02 0102 c5 0005 0102030405 c6 00000000"+
	"d4 01 00 d5 01 0000 c7 02 01 0000"+
	"82 a1 62 01 05 a1 63 df 00000001 d9 01 64 90"), 0x80)

const everyLog = `/a/=false /a/=true /a/=5 /a/=-32 /a/=255 /a/=65535 /a/=4294967295 /a/=4294967296 ` +
	`/a/=-128 /a/=-32768 /a/=-2147483648 /a/=-1 /a/="hi" /a/="hi" /a/="hi" /a/="hi" /a/=bin2 /a/=bin5 /a/=bin0 ` +
	`/a//b=1 /a//="c" `

func TestScannerWalks(t *testing.T) {
	for step := 1; step <= len(every); step++ {
		log, streamed, _ := walk(t, every, len(every), step)
		if want := everyLog; log != want || !bytes.Equal(streamed, []byte{1, 2, 3, 4, 5}) {
			t.Fatalf("in pieces of %d bytes:\n%s, want\n%s; %d bytes streamed", step, log, want, len(streamed))
		}
	}
}

func TestPath(t *testing.T) {
	var s Scanner
	found := 0
	h := &finder{func() {
		if s.Path("a", "*", "", "b") && !s.Path("a", "*", "b") && !s.Path("a", "*", "*", "b") && !s.Path("a") {
			found++
		}
	}}
	b := unhex("81 a1 61 81 a1 78 91 81 a1 62 a1 79") // {"a": {"x": [{"b": "y"}]}}
	s.Begin(len(b), h)
	if s.Next(b); found != 1 || !s.Lost() {
		t.Errorf("found %d times", found)
	}
}

type finder struct{ f func() }

func (h *finder) Text([]byte) { h.f() }
func (*finder) Number(int64)  {}
func (*finder) Bool(bool)     {}
func (*finder) Bin(int) bool  { return false }

// Bytes that are no value are taken to the end.
func TestScannerLosesItsWay(t *testing.T) {
	for name, text := range map[string]string{
		"the unused code":       "c1 01 02",
		"a length that lies":    "c6 7fffffff 01",
		"an array that lies":    "dd 7fffffff 01",
		"a map that lies":       "df ffffffff 01",
		"a text cut short":      "a5 6869",
		"a number cut short":    "cf 00",
		"a container as a key":  "81 81 01 02 03",
		"more than one value":   "01 02",
		"a streamed value, cut": "c4 09 01 02",
		"too deep":              strings.Repeat("91", 100) + "01",
	} {
		b := unhex(text)
		for _, step := range []int{1, len(b)} {
			if _, streamed, lost := walk(t, b, len(b), step); !lost || len(streamed) > 0 {
				t.Errorf("%s: lost %v, %d bytes streamed", name, lost, len(streamed))
			}
		}
	}
}

func TestScannerIsBounded(t *testing.T) {
	b := append(unhex("82 db 00010000"), bytes.Repeat([]byte("k"), 1<<16)...)
	b = append(append(b, unhex("db 00010000")...), bytes.Repeat([]byte("v"), 1<<16)...)
	b = append(b, unhex("a1 61 01")...)
	var s Scanner
	r := recorder{scan: &s}
	s.Begin(len(b), &r)
	if s.Next(b); r.log.String() != "/a=1 " || s.Held() > 4*MaxText {
		t.Errorf("%.100s: %d bytes held", r.log.String(), s.Held())
	}
}

// However a value is cut, the same is told.
func FuzzScanner(f *testing.F) {
	f.Add(every, 0)
	f.Add(unhex("81 a1 61 c4 09 01 02"), 7)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		if more < 0 || more > 1<<20 || len(b) == 0 {
			return
		}
		log, streamed, lost := walk(t, b, len(b)+more, len(b))
		for _, step := range []int{1, 5} {
			if l, s, x := walk(t, b, len(b)+more, step); l != log || !bytes.Equal(s, streamed) || x != lost {
				t.Fatalf("in pieces of %d bytes: %s, else %s", step, l, log)
			}
		}
	})
}
