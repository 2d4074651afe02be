package codecs_test

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

// method is a Method with nothing but traits.
type method struct {
	codecs.Method
	traits codecs.Traits
}

func (m method) Traits() codecs.Traits { return m.traits }

// The zero Traits promise nothing, and Values passes on every trait but Lossless.
func TestTraitsOfValues(t *testing.T) {
	if !codecs.Lossy(codecs.Values(method{})) {
		t.Error("a codec that promises nothing counts as lossless")
	}
	c := codecs.Values(method{traits: codecs.Traits{Lossless: true}})
	if c.Traits().Lossless || !codecs.Lossy(c) {
		t.Error("a method on values counts as lossless")
	}
	if got := codecs.Values(method{traits: codecs.Traits{Unbiased: true, Keys: rice}}).Traits(); !got.Unbiased || got.Keys != rice {
		t.Errorf("the traits are %+v, want the method's", got)
	}
}

// A rule without a codec sends bytes as they are, which loses nothing.
func TestVerbatimLosesNothing(t *testing.T) {
	if codecs.Lossy(nil) {
		t.Error("no codec counts as lossy")
	}
	if codecs.Lossy(rice) {
		t.Error("a lossless codec counts as lossy")
	}
}

var rice = keys.New(keys.Rice{})
