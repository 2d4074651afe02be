package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

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

// A peer of an earlier version, and one that is down, are not asked.
func TestExcerptNeedsAPeerThatGivesIt(t *testing.T) {
	names := []string{"lossless"}
	p := newPairWith(t, func(name string, c *Config) {
		c.Excerpt = func(string) []byte { return []byte("{}") }
		c.PeerCodecs = func(string) []string { return names }
	}, nil)
	if _, err := p.near.Excerpt(t.Context(), "far"); !errors.Is(err, ErrNoExcerpt) {
		t.Errorf("of an earlier version: %v", err)
	}
	names = []string{}
	if _, err := p.near.Excerpt(t.Context(), "far"); !errors.Is(err, tunnel.ErrPeerDown) {
		t.Errorf("down: %v", err)
	}
	names = []string{Excerpts}
	if _, err := p.near.Excerpt(t.Context(), "far"); err != nil {
		t.Error(err)
	}
}

// A peer that sends without end, or nothing at all, is given up.
func TestExcerptIsBounded(t *testing.T) {
	var sends Stream
	p := newPairWith(t, func(name string, c *Config) {
		if name == "near" {
			c.Open = func(context.Context, string, []byte) (Stream, error) { return sends, nil }
		}
	}, nil)
	flood := &scripted{chunk: bytes.Repeat([]byte("x"), 1000), gone: make(chan struct{})}
	sends = flood
	if got, err := p.near.Excerpt(t.Context(), "far"); err == nil || flood.read > MaxExcerpt+2000 {
		t.Errorf("%d bytes are taken of %d that were read, %v", len(got), flood.read, err)
	}
	silent := &scripted{gone: make(chan struct{})}
	sends = silent
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, io.ErrNoProgress)
	defer cancel()
	if _, err := p.near.Excerpt(ctx, "far"); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a silent peer: %v", err)
	}
}

// A scripted stream brings the same bytes again and again, or nothing until it is reset.
type scripted struct {
	Stream
	chunk []byte
	read  int
	gone  chan struct{}
}

func (s *scripted) ReadChunk() ([]byte, error) {
	if s.chunk == nil {
		<-s.gone
		return nil, tunnel.ErrClosed
	}
	s.read += len(s.chunk)
	return s.chunk, nil
}

func (s *scripted) Reset(tunnel.Code) {
	select {
	case <-s.gone:
	default:
		close(s.gone)
	}
}
