package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Excerpts is the name under which hellos list, among codecs, that a proxy gives its peers excerpts of its settings.
const Excerpts = "excerpts"

// MaxExcerpt bounds the bytes of an excerpt.
const MaxExcerpt = 64 << 10

// excerptTime bounds how long a peer may take to read its excerpt.
const excerptTime = 10 * time.Second

// ErrNoExcerpt says that a peer gives no excerpts: it is of a version without them.
var ErrNoExcerpt = errors.New("proxy: the peer runs a version that gives no excerpts of its settings: upgrade it, or compare the two files")

// Excerpt asks a peer, through the tunnel, for what its settings say about this site: at most MaxExcerpt bytes, which the peer may
// have made up. It returns when ctx ends.
func (p *Proxy) Excerpt(ctx context.Context, peer string) ([]byte, error) {
	if p.config.PeerCodecs != nil {
		switch names := p.config.PeerCodecs(peer); {
		case names == nil: // all peers have all
		case len(names) == 0:
			return nil, tunnel.ErrPeerDown
		case !slices.Contains(names, Excerpts):
			return nil, ErrNoExcerpt
		}
	}
	stream, err := p.config.Open(ctx, peer, []byte{frame.OpeningExcerpt})
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
		case len(text) > MaxExcerpt:
			return nil, fmt.Errorf("proxy: the peer's excerpt has more than %d bytes", MaxExcerpt)
		case errors.Is(err, io.EOF):
			return text, stream.Close()
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
	}
}

// answerExcerpt answers a peer that asks for an excerpt.
func (p *Proxy) answerExcerpt(peer string, in Incoming, accept func() Stream) {
	var text []byte
	if p.config.Excerpt != nil {
		text = p.config.Excerpt(peer)
	}
	if len(text) == 0 || len(text) > MaxExcerpt {
		in.Refuse(frame.RefusedBadOpening, "no excerpt of the settings is given")
		return
	}
	stream := accept()
	late := time.AfterFunc(excerptTime, func() { stream.Reset(frame.ResetByApp) })
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
