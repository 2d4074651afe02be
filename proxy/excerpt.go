package proxy

import (
	"context"
	"errors"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Excerpts is the name under which hellos list, among codecs, that a proxy gives its peers excerpts of its settings.
const Excerpts = "excerpts"

// MaxExcerpt bounds the bytes of an excerpt.
const MaxExcerpt = 64 << 10

// ErrNoExcerpt says that a peer gives no excerpts: it is of a version without them.
var ErrNoExcerpt = errors.New("proxy: the peer runs a version that gives no excerpts of its settings: upgrade it, or compare the two files")

// Excerpt asks a peer, through the tunnel, for what its settings say about this site: at most MaxExcerpt bytes, which the peer may
// have made up. It returns when ctx ends.
func (p *Proxy) Excerpt(ctx context.Context, peer string) ([]byte, error) {
	return p.inquire(ctx, peer, question{opening: frame.OpeningExcerpt, name: Excerpts, lacks: ErrNoExcerpt, most: MaxExcerpt})
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
	reply(text, accept)
}
