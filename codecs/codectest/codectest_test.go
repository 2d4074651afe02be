package codectest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// A breach is one way to break a promise of package codecs.
type breach string

// breaches lists the breaches and the part of the suite that must notice each.
var breaches = []struct {
	how, notices string
}{
	{"none", ""},
	{"changes an element", "/values"},
	{"is longer than it says", "/values"},
	{"wants more than there is", "/block"},
	{"writes into src", "/src"},
	{"keeps src", "/src"},
	{"keeps src to decode", "/src"},
	{"loses the prefix", "/dst"},
	{"grows dst though unsuited", "/dst"},
	{"leaves an element", "/every_element"},
	{"cannot do odd lengths", "/lengths"},
	{"needs alignment", "/unaligned"},
	{"counts unsuited blocks", "/unsuited"},
	{"panics at corrupt bytes", "/corrupt"},
	{"gives other errors", "/corrupt"},
	{"allocates what bytes say", "/corrupt"},
	{"shares state", "/src"},
	{"finds all unsuited", "/values"},
	{"has another text", "/text"},
	{"takes any parameter", "/text"},
	{"decodes what it does not encode", "fakes"},
	{"has other traits when parsed", "/text"},
	{"has keys that lose", "/traits"},
	{"has keys that take no integers", "/traits"},
	{"is lossless on average", "/traits"},
}

const variable = "CODECTEST_BREACH"

// TestFake is run by TestBreachesAreNoticed, in a process of its own for each breach.
func TestFake(t *testing.T) {
	how := os.Getenv(variable)
	if how == "" {
		t.Skip("run by TestBreachesAreNoticed")
	}
	t.Run("fakes", func(t *testing.T) {
		c := &fake{breach: breach(how)}
		Run(t, c, parseFake)
		Concurrent(t, c)
	})
}

// The suite passes a codec that keeps all promises and fails each that breaks one.
func TestBreachesAreNoticed(t *testing.T) {
	for _, b := range breaches {
		t.Run(b.how, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFake$", "-test.v")
			c.Env = append(os.Environ(), variable+"="+b.how)
			out, err := c.CombinedOutput()
			switch {
			case b.notices == "" && err != nil:
				t.Errorf("nothing is broken, but: %v\n%s", err, tail(out))
			case b.notices != "" && err == nil:
				t.Error("not noticed")
			case b.notices == "" || bytes.Contains(out, []byte(b.notices+" (")):
			default:
				t.Errorf("not noticed by %s:\n%s", b.notices, tail(out))
			}
		})
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// A fake copies elements of one type, after a number that counts its calls; it finds blocks unsuited that have a NaN or
// an infinity.
type fake struct {
	breach
	text   string
	shared atomic.Uint32
}

func parseFake(text string) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	c := &fake{breach: breach(os.Getenv(variable))}
	switch c.breach {
	case "has another text":
		c.text = "fraud"
	case "has other traits when parsed":
		c.text = "fake"
	}
	if c.breach != "takes any parameter" {
		err = a.Err()
	}
	return c, err
}

func (c *fake) String() string {
	if c.text != "" {
		return c.text
	}
	return "fake"
}

func (c *fake) Traits() codecs.Traits {
	switch c.breach {
	case "has keys that lose":
		return codecs.Traits{Lossless: true, Keys: codecs.Values(&halving{})}
	case "has keys that take no integers":
		return codecs.Traits{Lossless: true, Keys: &fake{}}
	case "is lossless on average":
		return codecs.Traits{Lossless: true, Unbiased: true}
	case "has other traits when parsed":
		return codecs.Traits{Lossless: c.text == ""}
	}
	return codecs.Traits{Lossless: true}
}

func (c *fake) MaxEncodedLen(n int) int {
	if c.breach == "is longer than it says" {
		return 4 * n
	}
	return 4*n + 1
}

func (c *fake) Block(size int) int {
	if c.breach == "wants more than there is" {
		return 1 << 20
	}
	return min(size, 1<<20)
}

func (c *fake) NewEncoder(d tensor.DType, n int) (codecs.Encoder, error) {
	if d != tensor.Float32 || c.breach == "cannot do odd lengths" && n%2 == 1 && n != 1 && n != 63 {
		return nil, codecs.ErrUnsuited
	}
	return &fakeCoder{fake: c}, nil
}

func (c *fake) NewDecoder(d tensor.DType, n int) (codecs.Decoder, error) {
	if d != tensor.Float32 && c.breach != "decodes what it does not encode" {
		return nil, codecs.ErrUnsuited
	}
	return &fakeCoder{fake: c}, nil
}

type fakeCoder struct {
	*fake
	calls byte
	kept  []byte
}

func finite(b []byte) bool {
	for i := 0; i < len(b); i += 4 {
		if binary.LittleEndian.Uint32(b[i:])&0x7f800000 == 0x7f800000 {
			return false
		}
	}
	return true
}

func (e *fakeCoder) Append(dst, src []byte) ([]byte, error) {
	if e.breach == "finds all unsuited" || !finite(src) {
		switch e.breach {
		case "counts unsuited blocks":
			e.calls++
		case "grows dst though unsuited":
			return append(dst, 0), codecs.ErrUnsuited
		}
		return dst, codecs.ErrUnsuited
	}
	e.calls++
	begin := len(dst)
	dst = append(append(dst, e.calls), src...)
	switch e.breach {
	case "changes an element":
		if len(src) > 0 {
			dst[len(dst)-1]++
		}
	case "writes into src":
		if len(src) > 0 {
			src[len(src)-1]++
		}
	case "keeps src":
		if len(e.kept) > 0 && len(src) > 0 {
			dst[begin] = e.kept[0]
		}
		e.kept = src
	case "loses the prefix":
		if begin > 0 {
			dst[0]++
		}
	case "needs alignment":
		if begin%2 == 1 {
			return dst[:begin], fmt.Errorf("dst is not aligned")
		}
	case "shares state":
		dst[begin] = byte(e.shared.Add(1) % 4)
	}
	return dst, nil
}

func (e *fakeCoder) Decode(dst, src []byte) error {
	e.calls++
	if len(src) != len(dst)+1 || src[0] > 8 && e.breach != "keeps src" {
		switch e.breach {
		case "panics at corrupt bytes":
			panic("corrupt")
		case "gives other errors":
			return errors.New("corrupt")
		case "allocates what bytes say":
			e.kept = make([]byte, 1<<24)
		}
		return codecs.ErrCorrupt
	}
	switch e.breach {
	case "leaves an element":
		if len(dst) > 0 {
			dst = dst[1:]
			src = src[1:]
		}
	case "keeps src to decode":
		if len(e.kept) > 0 && len(dst) > 0 {
			src = append(bytes.Clone(src[:len(src)-1]), e.kept[0])
		}
		e.kept = src
	}
	copy(dst, src[1:])
	return nil
}
