package cast

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

func parse(text string) (codecs.Codec, error) { return codectest.Parse(text, FromArgs) }

var types = []tensor.DType{tensor.Float16, tensor.BFloat16}

func mustNew(t testing.TB, d tensor.DType) codecs.Codec {
	t.Helper()
	return codectest.New(t, New, d)
}

func TestConformance(t *testing.T) {
	for _, d := range types {
		c := mustNew(t, d)
		t.Run(c.String(), func(t *testing.T) { codectest.Run(t, c, parse) })
	}
}

func TestNew(t *testing.T) {
	for _, d := range []tensor.DType{tensor.NoDType, tensor.Float32, tensor.Int8} {
		if _, err := New(d); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%v: %v, want ErrText", d, err)
		}
	}
	if _, err := parse("fp16(block=3)"); !errors.Is(err, codecs.ErrText) {
		t.Errorf("a parameter: %v, want ErrText", err)
	}
}
