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

// A question is one that a proxy asks a peer by a stream of its own, on which the peer sends one text.
type question struct {
	opening byte   // of the stream
	name    string // under which hellos list that a proxy answers it
	lacks   error  // says that the peer's version does not answer it
	most    int    // bytes of an answer
}

// replyTime bounds how long a peer may take to read an answer.
const replyTime = 10 * time.Second

// inquire asks a peer and returns its answer, which the peer may have made up. It returns when ctx ends.
func (p *Proxy) inquire(ctx context.Context, peer string, q question) ([]byte, error) {
	if p.config.PeerCodecs != nil {
		switch names := p.config.PeerCodecs(peer); {
		case names == nil: // all peers have all
		case len(names) == 0:
			return nil, tunnel.ErrPeerDown
		case !slices.Contains(names, q.name):
			return nil, q.lacks
		}
	}
	stream, err := p.config.Open(ctx, peer, []byte{q.opening})
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
		case len(text) > q.most:
			return nil, fmt.Errorf("proxy: the peer's answer about its %s has more than %d bytes", q.name, q.most)
		case errors.Is(err, io.EOF):
			return text, stream.Close()
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
	}
}

// reply sends an answer on a stream that a peer has opened to ask.
func reply(text []byte, accept func() Stream) {
	stream := accept()
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
