package inquiry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// opens returns a function that opens a stream.
func opens(s path.Stream) func(context.Context, string, []byte) (path.Stream, error) {
	return func(context.Context, string, []byte) (path.Stream, error) { return s, nil }
}

// A peer of an earlier version, and one that is down, are not asked; a peer whose names nobody knows is.
func TestOnlyPeersThatAnswerAreAsked(t *testing.T) {
	for _, c := range []struct {
		name  string
		names func(string) []string
		want  error
	}{
		{"earlier", func(string) []string { return []string{"lossless", Views} }, ErrNoExcerpt},
		{"down", func(string) []string { return []string{} }, tunnel.ErrPeerDown},
		{"answers", func(string) []string { return []string{Excerpts} }, nil},
		{"all", func(string) []string { return nil }, nil},
		{"not known", nil, nil},
	} {
		asked := false
		open := func(_ context.Context, peer string, opening []byte) (path.Stream, error) {
			asked = true
			if peer != "far" || !bytes.Equal(opening, []byte{Excerpt.opening}) {
				t.Errorf("%s: %s is asked by %x", c.name, peer, opening)
			}
			return new(pathtest.Sink), nil
		}
		if _, err := Excerpt.Ask(t.Context(), "far", c.names, open); !errors.Is(err, c.want) || asked != (c.want == nil) {
			t.Errorf("%s: %v, asked %v, want %v", c.name, err, asked, c.want)
		}
	}
}

// A peer that sends without end, or nothing at all, is given up.
func TestAnswersAreBounded(t *testing.T) {
	flood := &scripted{chunk: bytes.Repeat([]byte("x"), 1000), gone: make(chan struct{})}
	if got, err := Excerpt.Ask(t.Context(), "far", nil, opens(flood)); err == nil || flood.read > MaxExcerpt+2000 {
		t.Errorf("%d bytes are taken of %d that were read, %v", len(got), flood.read, err)
	}
	silent := &scripted{gone: make(chan struct{})}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, io.ErrNoProgress)
	defer cancel()
	if _, err := Excerpt.Ask(ctx, "far", nil, opens(silent)); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a silent peer: %v", err)
	}
}

// Only an answer of one byte or more, within the bound, is sent; else the peer is refused.
func TestAnswer(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxView)
	for _, c := range []struct {
		name string
		text func(string) []byte
		ok   bool
	}{
		{"long", func(string) []byte { return long }, true},
		{"too long", func(string) []byte { return append(long, 'x') }, false},
		{"empty", func(string) []byte { return nil }, false},
		{"none", nil, false},
	} {
		s := new(pathtest.Sink)
		refused := false
		View.Answer("far", c.text, func(tunnel.Code, string) { refused = true }, func() path.Stream { return s })
		if got := s.Sent(); refused == c.ok || (len(got) > 0) != c.ok || c.ok && !bytes.Equal(got, long) {
			t.Errorf("%s: refused %v, %d bytes sent", c.name, refused, len(got))
		}
	}
}

// A scripted stream brings the same bytes again and again, or nothing until it is reset.
type scripted struct {
	path.Stream
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
