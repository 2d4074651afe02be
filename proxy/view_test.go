package proxy

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/inquiry"
)

// A proxy shows its half to the peer that asks, and tells it of nobody else; a peer of an earlier version is not asked.
func TestView(t *testing.T) {
	var asked []string
	names := []string{Excerpts}
	p := newPairWith(t, func(name string, c *Config) {
		if name == "far" {
			c.View = func(peer string) []byte {
				asked = append(asked, peer)
				return []byte(`{"version":1}`)
			}
			return
		}
		c.PeerCodecs = func(string) []string { return names }
	}, nil)
	if _, err := p.near.View(t.Context(), "far"); !errors.Is(err, inquiry.ErrNoView) || len(asked) != 0 {
		t.Errorf("of an earlier version: %v, asked %v", err, asked)
	}
	names = []string{Excerpts, Views}
	got, err := p.near.View(t.Context(), "far")
	if err != nil || string(got) != `{"version":1}` || len(asked) != 1 || asked[0] != "far" { // as the pair calls every peer
		t.Errorf("%q, %v, asked %v", got, err, asked)
	}
	if _, err := p.far.View(t.Context(), "near"); err == nil {
		t.Error("a proxy that shows nothing has shown something")
	}
}
