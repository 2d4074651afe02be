package topk

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

func parse(text string) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	return FromArgs(a)
}

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	codec, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{K: 0.25, Sampled: true, Block: 1 << 15}, {K: 1, Block: 70}, {K: 0.1, Values: tensor.Float16}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"topk", "topk"},
		{"topk(k=0.01,threshold=exact,values=fp32,block=1048576)", "topk"},
		{"topk(k=0.0005,values=bf16)", "topk(k=0.0005,values=bf16)"},
		{"topk(threshold=sampled,block=4096,values=fp16)", "topk(threshold=sampled,values=fp16,block=4096)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"topk(k=0)", "topk(k=1.5)", "topk(threshold=guessed)", "topk(values=int8)", "topk(block=0)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{K: -1}, {K: 2}, {Block: -1}, {Block: 1<<24 + 1}, {Values: tensor.Float64}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
