// Package inquiry has the questions that a proxy asks a peer, each by a stream of its own, on which the peer sends one
// text and ends.
//
//	asker ── opening ──▶ peer
//	asker ◀── text, FIN ── peer        at most the question's Max bytes, within replyTime
//	asker ── FIN ──▶ peer
//
// The peer may have made the text up: the asker bounds its length, and reads it as foreign bytes.
package inquiry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// The names under which hellos list, among codecs, that a proxy answers a question.
const (
	Excerpts = "excerpts"
	Views    = "views"
)

// The bounds of answers, in bytes.
const (
	MaxExcerpt = 64 << 10
	MaxView    = 64 << 10
)

var (
	// ErrNoExcerpt says that a peer gives no excerpts: it is of a version without them.
	ErrNoExcerpt = errors.New("proxy: the peer runs a version that gives no excerpts of its settings: upgrade it, or compare the two files")
	// ErrNoView says that a peer gives no views: it is of a version without them.
	ErrNoView = errors.New("proxy: the peer runs a version that does not show its half; upgrade it to see both directions here")
)

// A Question is one that a proxy can ask its peers.
type Question struct {
	name    string // under which hellos list that a proxy answers it
	opening byte   // of the stream
	limit   int    // bytes of an answer
	lacks   error  // says that the peer's version does not answer it
	refusal string // of a proxy that has no answer
}

var (
	// Excerpt asks for the part of the peer's settings that is about the asker's site.
	Excerpt = Question{Excerpts, frame.OpeningExcerpt, MaxExcerpt, ErrNoExcerpt, "no excerpt of the settings is given"}
	// View asks for the peer's view of its traffic with the asker's site.
	View = Question{Views, frame.OpeningView, MaxView, ErrNoView, "no view of the traffic is given"}
)

// replyTime bounds how long a peer may take to read an answer.
const replyTime = 10 * time.Second

// Ask asks a peer, whose names and streams the functions have, and returns its answer. It returns when ctx ends.
func (q *Question) Ask(ctx context.Context, peer string, names func(peer string) []string, open func(ctx context.Context, peer string, opening []byte) (path.Stream, error)) ([]byte, error) {
	if names != nil {
		switch names := names(peer); {
		case names == nil: // all peers have all
		case len(names) == 0:
			return nil, tunnel.ErrPeerDown
		case !slices.Contains(names, q.name):
			return nil, q.lacks
		}
	}
	stream, err := open(ctx, peer, []byte{q.opening})
	if err != nil {
		return nil, err
	}
	defer stream.Reset(frame.ResetByApp) // after an orderly end this does nothing
	defer context.AfterFunc(ctx, func() { stream.Reset(frame.ResetByApp) })()
	var text []byte
	for {
		chunk, err := stream.ReadChunk()
		text = append(text, chunk...)
		switch {
		case len(text) > q.limit:
			return nil, fmt.Errorf("proxy: the peer's answer about its %s has more than %d bytes", q.name, q.limit)
		case errors.Is(err, io.EOF):
			return text, stream.Close()
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
	}
}

// Answer answers a peer that asks. text returns the answer for the peer; where text is nil, or its answer is empty or
// too long, the peer is refused.
func (q *Question) Answer(peer string, text func(peer string) []byte, refuse func(code tunnel.Code, text string), accept func() path.Stream) {
	var answer []byte
	if text != nil {
		answer = text(peer)
	}
	if len(answer) == 0 || len(answer) > q.limit {
		refuse(frame.RefusedBadOpening, q.refusal)
		return
	}
	reply(answer, accept())
}

// reply sends an answer on a stream that a peer has opened to ask.
func reply(text []byte, stream path.Stream) {
	late := time.AfterFunc(replyTime, func() { stream.Reset(frame.ResetByApp) })
	defer late.Stop()
	defer stream.Reset(frame.ResetByApp)
	if _, err := stream.Write(text); err != nil || stream.CloseWrite() != nil {
		return
	}
	for { // the peer's orderly end, after which nothing is left to be sent again
		if _, err := stream.ReadChunk(); err != nil {
			stream.Close()
			return
		}
	}
}
