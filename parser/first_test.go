package parser_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A letters value is a parser that reads runs of letters: lower case is opaque, a capital is a byte of the tensor of
// that length and key, and it understands no letter outside its alphabet.
type letters struct {
	alphabet string
	size     int // of the tensor that begins at the next capital
	off      int
}

var errScript = errors.New("not in the alphabet")

func (s *letters) Next(b []byte) (parser.Segment, error) {
	if !bytes.ContainsRune([]byte(s.alphabet), rune(b[0])) {
		return parser.Segment{}, errScript
	}
	if b[0] >= 'a' {
		n := 1
		for n < len(b) && b[n] >= 'a' && bytes.ContainsRune([]byte(s.alphabet), rune(b[n])) {
			n++
		}
		return parser.Segment{Len: n}, nil
	}
	t := tensor.Tensor{Key: uint64(b[0]), Size: s.size, Off: s.off, Hold: s.size - s.off}
	n := min(len(b), s.size-s.off)
	s.off = (s.off + n) % s.size
	return parser.Segment{Len: n, Tensor: t}, nil
}

type protocol func() parser.Parser

func (protocol) String() string        { return "letters" }
func (protocol) Traits() parser.Traits { return parser.Traits{} }

func (p protocol) New(parser.Conn) (parser.Parser, parser.Parser) { return p(), p() }

// The answers of First do not depend on how the stream is cut, also where a tensor ends the choice within a call.
func TestFirstConforms(t *testing.T) {
	fresh := func() parser.Protocol {
		return protocol(func() parser.Parser {
			return parser.First(&letters{alphabet: "ab", size: 1}, &letters{alphabet: "abcX", size: 5}, &letters{alphabet: "abcdX", size: 3})
		})
	}
	var exchanges []parsertest.Exchange
	for _, s := range []string{"aab", "aacXXXXXbbXXXXXa", "aadXXXbXXXd", "abcdXXXcXXX", "XXXXXa", "abcz", "zzz", "aacXXXXXd"} {
		exchanges = append(exchanges, parsertest.Exchange{{From: parser.Client, Bytes: []byte(s)}})
	}
	parsertest.Run(t, fresh, parser.Conn{}, exchanges...)
}

// classes writes the answers of p for stream, a letter for each byte: the tensor's length in digits, '.' for opaque
// bytes, and '!' for bytes after an error.
func classes(p parser.Parser, stream string, step int) (string, error) {
	var out []byte
	for len(out) < len(stream) {
		at := len(out)
		seg, err := p.Next([]byte(stream[at:min(len(stream), at+step)]))
		if err != nil {
			return string(append(out, bytes.Repeat([]byte("!"), len(stream)-at)...)), err
		}
		c := byte('.')
		if seg.Tensor.Size > 0 {
			c = '0' + byte(seg.Tensor.Size)
		}
		out = append(out, bytes.Repeat([]byte{c}, seg.Len)...)
	}
	return string(out), nil
}

func TestFirstChooses(t *testing.T) {
	for _, c := range []struct{ stream, want, why string }{
		{"aabXXXXXa", "...55555.", "the first that has understood every byte wins as soon as it sees a tensor"},
		{"aadXXXbXXX", "...333.333", "one that did not understand a byte is out"},
		{"ababab", "......", "without a tensor all bytes are opaque"},
		{"aabXXXXXd", "...55555!", "the choice is final"},
		{"abz", "!!!", "nobody is left: the bytes of the call travel verbatim"},
	} {
		p := parser.First(&letters{alphabet: "abcX", size: 5}, &letters{alphabet: "abcdX", size: 3})
		if got, _ := classes(p, c.stream, len(c.stream)); got != c.want {
			t.Errorf("%s: %s gave %s, want %s", c.why, c.stream, got, c.want)
		}
	}
}

func TestFirstErrors(t *testing.T) {
	if _, err := parser.First().Next([]byte("a")); !errors.Is(err, parser.ErrForeign) {
		t.Errorf("no parser to try: %v, want ErrForeign", err)
	}
	p := parser.First(&letters{alphabet: "a"}, &letters{alphabet: "ab"})
	for range 2 {
		if _, err := p.Next([]byte("z")); err == nil {
			t.Error("an unknown byte was understood")
		}
	}
	if _, err := parser.First(&letters{alphabet: "a"}, &letters{alphabet: "b"}).Next([]byte("z")); !errors.Is(err, errScript) {
		t.Errorf("the last parser's error became %v", err)
	}
	single := &letters{alphabet: "a"}
	if parser.First(single) != parser.Parser(single) {
		t.Error("First of one parser is another")
	}
}

func TestVerbatim(t *testing.T) {
	if seg, err := (parser.Verbatim{}).Next(make([]byte, 7)); seg.Len != 7 || seg.Tensor.Size != 0 || err != nil {
		t.Errorf("%+v, %v", seg, err)
	}
}

// A counting value is a letters value that counts its bytes as messages, and is sure of its protocol at a letter.
type counting struct {
	letters
	sign byte
	n    int
	sure bool
}

func (c *counting) Next(b []byte) (parser.Segment, error) {
	seg, err := c.letters.Next(b[:1])
	c.n += seg.Len
	c.sure = c.sure || err == nil && b[0] == c.sign
	return seg, err
}

func (c *counting) Messages() (all, payloads int) { return c.n, c.n / 2 }
func (c *counting) Recognized() bool              { return c.sure }

// First counts as the parser does that it is left with, or that is sure of its protocol.
func TestFirstCounts(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   int
		sure   bool
	}{{"ab", 0, false}, {"abs", 3, true}, {"abds", 4, true}, {"abd", 3, false}, {"z", 0, false}} {
		p := parser.First(&counting{letters: letters{alphabet: "abs"}, sign: 's'}, &counting{letters: letters{alphabet: "abds"}, sign: 's'})
		for i := range c.stream {
			p.Next([]byte(c.stream[i : i+1]))
		}
		counter := p.(parser.Counter)
		if n, half := counter.Messages(); n != c.want || half != c.want/2 || counter.Recognized() != c.sure {
			t.Errorf("%s: %d messages, %d payloads, recognized %v", c.stream, n, half, counter.Recognized())
		}
	}
}
