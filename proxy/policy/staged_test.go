package policy

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// As stages come into force tensors move to their codecs in order, and nothing moves that its role, or a rule, keeps
// exact.
func TestStages(t *testing.T) {
	at := 0
	base, err := New([]Rule{{Job: "kept", Codec: "lossless"}, {Job: "bare", Codec: Verbatim}, {Job: "coarse", Codec: "3lc"}, {Job: "fine", Codec: "int4", FlushEvery: 10}, {Job: "pulls", Roles: []tensor.Role{tensor.State}, Codec: "int4"}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Staged(base, []Staging{{Peer: "tokyo", Codecs: []string{"int4", "3lc"}, At: func() int { return at }}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*tensor.Tensor)) tensor.Tensor {
		x := gradient(1)
		f(&x)
		return x
	}
	tokyo := Flow{Peer: "tokyo"}
	job := func(name string) Flow { return Flow{Peer: "tokyo", Job: name} }
	for name, c := range map[string]struct {
		f    Flow
		t    tensor.Tensor
		want [4]string // by stage
	}{
		"gradient":           {tokyo, gradient(1), [4]string{"lossless", "int4", "3lc", "3lc"}},
		"another peer":       {Flow{Peer: "oslo"}, gradient(1), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"kept by a rule":     {job("kept"), gradient(1), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"verbatim by a rule": {job("bare"), gradient(1), [4]string{Verbatim, Verbatim, Verbatim, Verbatim}},
		"coarser by a rule":  {job("coarse"), gradient(1), [4]string{"3lc", "3lc", "3lc", "3lc"}},
		"finer by a rule":    {job("fine"), gradient(1), [4]string{"int4", "int4", "3lc", "3lc"}},
		"exact":              {tokyo, change(func(x *tensor.Tensor) { x.Role = tensor.Exact }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"unknown":            {tokyo, change(func(x *tensor.Tensor) { x.Role = tensor.Unknown }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"state without base": {tokyo, change(func(x *tensor.Tensor) { x.Role = tensor.State }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"state":              {tokyo, change(func(x *tensor.Tensor) { x.Role, x.Base = tensor.State, 2 }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"state by a rule":    {job("pulls"), change(func(x *tensor.Tensor) { x.Role, x.Base = tensor.State, 2 }), [4]string{"int4", "int4", "3lc", "3lc"}},
		"sum":                {tokyo, change(func(x *tensor.Tensor) { x.Role = tensor.Aggregate }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"integers":           {tokyo, change(func(x *tensor.Tensor) { x.DType = tensor.Int64 }), [4]string{"lossless", "lossless", "lossless", "lossless"}},
		"small":              {tokyo, change(func(x *tensor.Tensor) { x.Size = 512 }), [4]string{Verbatim, Verbatim, Verbatim, Verbatim}},
	} {
		for at = range c.want {
			got := p.Choose(c.f, c.t, Measured{})
			text := Verbatim
			if got.Codec != nil {
				text = got.Codec.String()
			}
			if text != c.want[at] {
				t.Errorf("%s, stage %d: %s, want %s", name, at, text, c.want[at])
			}
			if text == "3lc" && c.t.Role == tensor.Gradient && !got.Feedback {
				t.Errorf("%s, stage %d: no feedback", name, at)
			}
			if c.f.Job == "fine" && got.Flush != 10 {
				t.Errorf("%s, stage %d: exact values every %d values, want 10, as the rule says", name, at, got.Flush)
			}
		}
	}
	at = 1
	learning := change(func(x *tensor.Tensor) { x.Role, x.Why = tensor.Unknown, tensor.Learning })
	if got := p.Choose(tokyo, learning, Measured{}); !got.Watch || got.Codec.String() != "lossless" {
		t.Errorf("a tensor that will be a gradient is not watched: %+v", got)
	}
	if n := len(p.(*staged).Codings()); n < 8 {
		t.Errorf("%d codings", n)
	}
	if _, err := Staged(base, []Staging{{Codecs: []string{"zip"}}}, fakes); err == nil {
		t.Error("an unknown codec was taken")
	}
}
