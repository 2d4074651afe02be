package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/tensor"
)

// fake is a codec that has only a name, and is lossy or not.
type fake struct {
	codecs.Codec
	name  string
	lossy bool
	block int // bytes; 0: any number
}

func (f fake) String() string        { return f.name }
func (f fake) Traits() codecs.Traits { return codecs.Traits{Lossless: !f.lossy} }
func (f fake) Block(size int) int {
	if f.block > 0 {
		return min(size, f.block)
	}
	return size
}

func fakes(text string) (codecs.Codec, error) {
	switch text {
	case "lossless", "fast":
		return fake{name: text}, nil
	case "3lc", "int4":
		return fake{name: text, lossy: true}, nil
	}
	return nil, fmt.Errorf("%w: %q", codecs.ErrText, text)
}

func gradient(key uint64) tensor.Tensor {
	return tensor.Tensor{Key: key, Role: tensor.Gradient, DType: tensor.Float32, Size: 4096}
}

// A codec with zero Traits may lose something, so it must not touch a tensor without proof, whatever a rule says.
func TestZeroTraitsMayLose(t *testing.T) {
	p, err := New([]Rule{{Roles: []tensor.Role{tensor.Unknown, tensor.Exact, tensor.Gradient}, Codec: "forgetful"}}, func(text string) (codecs.Codec, error) {
		if text == "forgetful" {
			return forgetful{fake{name: text}}, nil
		}
		return fakes(text)
	})
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[tensor.Role]string{tensor.Unknown: "lossless", tensor.Exact: "lossless", tensor.Gradient: "forgetful"} {
		x := gradient(1)
		x.Role = role
		if got := p.Choose(Flow{}, x, Measured{}); got.Codec.String() != want || got.Feedback != (role == tensor.Gradient) {
			t.Errorf("%v: %+v, want %s", role, got, want)
		}
	}
}

// forgetful is a codec whose author has promised nothing.
type forgetful struct{ fake }

func (forgetful) Traits() codecs.Traits { return codecs.Traits{} }

// A method that is right on average only is for gradients, which then have no feedback; other tensors that come to its
// rule lose nothing.
func TestUnbiasedIsForGradients(t *testing.T) {
	p, err := New([]Rule{{Roles: []tensor.Role{tensor.Gradient, tensor.Aggregate, tensor.State}, Codec: "qsgd(bits=2)", FlushEvery: 9}}, all.New)
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[tensor.Role]string{tensor.Gradient: "qsgd(bits=2)", tensor.Aggregate: "lossless", tensor.State: "lossless"} {
		x := gradient(1)
		x.Role, x.Base = role, 1
		if got := p.Choose(Flow{LossyAggregates: true}, x, Measured{}); got.Codec.String() != want || got.Feedback || got.Closed || got.Flush != 0 {
			t.Errorf("%v: %+v, want %s and no feedback", role, got, want)
		}
	}
}

// Loss needs everything at once: a rule, the role, an element type and an identity. Whatever lacks one travels lossless
// and says why.
func TestLossNeedsProof(t *testing.T) {
	p, err := New([]Rule{{Protocol: "named", Roles: []tensor.Role{tensor.State}, Codec: "3lc", FlushEvery: 9}, {Codec: "3lc"}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*tensor.Tensor)) tensor.Tensor {
		x := gradient(1)
		change(&x)
		return x
	}
	for name, c := range map[string]struct {
		t    tensor.Tensor
		f    Flow
		want string
		why  tensor.Reason
	}{
		"gradient": {t: gradient(1), want: "3lc"},
		"no key":   {t: gradient(0), want: "lossless", why: tensor.RoleUnproved},
		"state":    {t: with(func(x *tensor.Tensor) { x.Role = tensor.State }), want: "lossless", why: tensor.RoleUnproved},
		"state with a base, not named": {t: with(func(x *tensor.Tensor) { x.Role, x.Base = tensor.State, 1 }), want: "lossless",
			why: tensor.RoleUnproved},
		"state named, without a base": {t: with(func(x *tensor.Tensor) { x.Role = tensor.State }), f: Flow{Protocol: "named"}, want: "lossless",
			why: tensor.RoleUnproved},
		"state named, integers": {t: with(func(x *tensor.Tensor) { x.Role, x.Base, x.DType = tensor.State, 1, tensor.Int8 }),
			f: Flow{Protocol: "named"}, want: "lossless", why: tensor.RoleUnproved},
		"state named":       {t: with(func(x *tensor.Tensor) { x.Role, x.Base = tensor.State, 1 }), f: Flow{Protocol: "named"}, want: "3lc"},
		"exact":             {t: with(func(x *tensor.Tensor) { x.Role = tensor.Exact }), want: "lossless", why: tensor.RoleUnproved},
		"unknown, says why": {t: with(func(x *tensor.Tensor) { x.Role, x.Why = tensor.Unknown, tensor.DTypeUnknown }), want: "lossless", why: tensor.DTypeUnknown},
		"integers":          {t: with(func(x *tensor.Tensor) { x.DType = tensor.Int32 }), want: "lossless", why: tensor.DTypeUnknown},
		"no type":           {t: with(func(x *tensor.Tensor) { x.DType = tensor.NoDType }), want: "lossless", why: tensor.DTypeUnknown},
		"aggregate":         {t: with(func(x *tensor.Tensor) { x.Role = tensor.Aggregate }), want: "lossless", why: tensor.RoleUnproved},
		"aggregate, allowed": {t: with(func(x *tensor.Tensor) { x.Role = tensor.Aggregate }),
			f: Flow{LossyAggregates: true}, want: "3lc"},
	} {
		got := p.Choose(c.f, c.t, Measured{})
		if got.Codec.String() != c.want || got.Why != c.why {
			t.Errorf("%s: %v because %v, want %v because %v", name, got.Codec, got.Why, c.want, c.why)
		}
		if closed := c.t.Role == tensor.State; codecs.Lossy(got.Codec) && (got.Feedback == closed || got.Closed != closed || closed && got.Flush != 9) {
			t.Errorf("%s: lossy without feedback, or without the loop being closed: %+v", name, got)
		}
	}
}

func TestFirstRuleWins(t *testing.T) {
	from := FromServer
	p, err := New([]Rule{
		{Job: "a", Codec: Verbatim},
		{Protocol: "gloo", MinBytes: 8000, Codec: "3lc", NoFeedback: true, FlushEvery: 7},
		{Direction: &from, DTypes: []tensor.DType{tensor.Float32}, MaxBytes: 5000, Codec: "fast"},
	}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	big := gradient(1)
	big.Size = 8000
	small := gradient(1)
	small.Size = 100
	sum := big
	sum.Role = tensor.Aggregate
	for name, c := range map[string]struct {
		f        Flow
		t        tensor.Tensor
		want     string
		why      tensor.Reason
		feedback bool
		flush    int
	}{
		"job":                             {f: Flow{Job: "a", Protocol: "gloo"}, t: big, want: Verbatim},
		"size and protocol":               {f: Flow{Protocol: "gloo"}, t: big, want: "3lc"},
		"direction":                       {f: Flow{Direction: FromServer}, t: gradient(1), want: "fast"},
		"none":                            {t: gradient(1), want: "lossless", why: tensor.NoRule},
		"none, small":                     {t: small, want: Verbatim, why: tensor.TooSmall},
		"none, small, perhaps held":       {t: tensor.Tensor{Key: 1, Base: 1, Size: MinShared}, want: "lossless", why: tensor.NoRule},
		"none, too small for a reference": {t: tensor.Tensor{Key: 1, Base: 1, Size: MinShared - 1}, want: Verbatim, why: tensor.TooSmall},
		"aggregates default":              {f: Flow{LossyAggregates: true}, t: sum, want: AggregateCodec, feedback: true},
		"aggregates always have feedback": {f: Flow{Protocol: "gloo", LossyAggregates: true}, t: sum, want: "3lc",
			feedback: true, flush: 7},
	} {
		got := p.Choose(c.f, c.t, Measured{})
		text := Verbatim
		if got.Codec != nil {
			text = got.Codec.String()
		}
		if text != c.want || got.Why != c.why || got.Feedback != c.feedback || got.Flush != c.flush {
			t.Errorf("%s: %s because %v, feedback %v, flush %d", name, text, got.Why, got.Feedback, got.Flush)
		}
	}
	if _, err := New([]Rule{{Codec: "lossless"}, {Codec: "zip"}}, fakes); err == nil {
		t.Error("an unknown codec was taken")
	}
}

// Small layers go round the codec of the large ones, by either of two rules: one of their own before it, or its bound.
func TestSmallTensorsBypass(t *testing.T) {
	const bound = 4096
	for _, c := range []struct {
		rules []Rule
		small map[int]string // by size in bytes
	}{
		{[]Rule{{MaxBytes: bound - 1, Codec: Verbatim}, {Codec: "3lc"}}, map[int]string{1: Verbatim, MinBytes: Verbatim, bound - 1: Verbatim}},
		{[]Rule{{MaxBytes: bound - 1, Codec: "lossless"}, {Codec: "3lc"}}, map[int]string{1: "lossless", MinBytes: "lossless", bound - 1: "lossless"}},
		{[]Rule{{MinBytes: bound, Codec: "3lc"}}, map[int]string{1: Verbatim, MinBytes - 1: Verbatim, MinBytes: "lossless", bound - 1: "lossless"}},
	} {
		p, err := New(c.rules, fakes)
		if err != nil {
			t.Fatal(err)
		}
		check := func(size int, want string) {
			t.Helper()
			x := gradient(1)
			x.Size = size
			got := p.Choose(Flow{}, x, Measured{})
			text := Verbatim
			if got.Codec != nil {
				text = got.Codec.String()
			}
			if text != want || (size < bound && got.Feedback) {
				t.Errorf("%+v: %d bytes travel as %s (feedback: %v), want %s", c.rules, size, text, got.Feedback, want)
			}
		}
		for size, want := range c.small {
			check(size, want)
		}
		check(bound, "3lc")
		check(100*bound, "3lc")
	}
}

// Where a rule's codec may lose something, tensors that must lose nothing are lossless, and verbatim where that would
// make them longer. Tensors whose role is still learned are watched, whatever their size.
func TestSmallExactTensorsBypassALossyRule(t *testing.T) {
	p, err := New([]Rule{{Codec: "3lc"}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*tensor.Tensor)
		want   string
	}{
		"gradient":                  {func(*tensor.Tensor) {}, "3lc"},
		"exact":                     {func(x *tensor.Tensor) { x.Role = tensor.Exact }, Verbatim},
		"integers":                  {func(x *tensor.Tensor) { x.DType = tensor.Int32 }, Verbatim},
		"exact, large":              {func(x *tensor.Tensor) { x.Role, x.Size = tensor.Exact, MinBytes }, "lossless"},
		"state, perhaps held":       {func(x *tensor.Tensor) { x.Role, x.Base, x.Size = tensor.State, 1, MinShared }, "lossless"},
		"state, perhaps held, tiny": {func(x *tensor.Tensor) { x.Role, x.Base, x.Size = tensor.State, 1, MinShared-1 }, Verbatim},
		"still learned":             {func(x *tensor.Tensor) { x.Role, x.Why = tensor.Exact, tensor.Learning }, "lossless"},
	} {
		x := gradient(1)
		x.Size = MinBytes - 1
		c.change(&x)
		got := p.Choose(Flow{}, x, Measured{})
		text := Verbatim
		if got.Codec != nil {
			text = got.Codec.String()
		}
		if text != c.want || text != "3lc" && got.Why == tensor.OK {
			t.Errorf("%s: %d bytes travel as %s because %v, want %s", name, x.Size, text, got.Why, c.want)
		}
	}
}

// A rule with a codec of tiny blocks is refused: their headers would take more than they save, and their coders all
// memory.
func TestTinyBlocksAreRefused(t *testing.T) {
	for block, refused := range map[int]bool{4: true, MinBlock - 4: true, MinBlock: false, 1 << 20: false} {
		_, err := New([]Rule{{Codec: "cuts"}}, func(text string) (codecs.Codec, error) {
			if text == "cuts" {
				return fake{name: text, lossy: true, block: block}, nil
			}
			return fakes(text)
		})
		if refused != (err != nil) || refused && !strings.HasPrefix(err.Error(), "policy: rule 1: cuts cuts tensors into blocks of") {
			t.Errorf("blocks of %d bytes: %v", block, err)
		}
	}
}
