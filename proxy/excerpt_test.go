package proxy

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A proxy learns from its peer what that one's settings say about it, whole, and each peer is told only of itself.
func TestExcerpt(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxExcerpt)
	var said []byte
	var asked []string
	p := newPairWith(t, func(name string, c *Config) {
		if name == "far" {
			c.Excerpt = func(peer string) []byte {
				asked = append(asked, peer)
				return said
			}
		}
	}, nil)
	for _, x := range []struct {
		name string
		text []byte
		ok   bool
	}{
		{"short", []byte(`{"site":"far"}`), true}, {"as long as it may be", long, true}, {"too long", append(long, 'x'), false}, {"none", nil, false},
	} {
		said, asked = x.text, nil
		got, err := p.near.Excerpt(t.Context(), "far")
		if x.ok && (err != nil || !bytes.Equal(got, x.text)) {
			t.Errorf("%s: %d bytes, %v, want %d", x.name, len(got), err, len(x.text))
		}
		if refused := (*tunnel.RefusedError)(nil); !x.ok && !errors.As(err, &refused) {
			t.Errorf("%s: %d bytes, %v, want a refusal", x.name, len(got), err)
		}
		if len(asked) != 1 || asked[0] != "far" { // as the pair calls every peer
			t.Errorf("%s: the far proxy was asked for %q", x.name, asked)
		}
	}
}
