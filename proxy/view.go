package proxy

import (
	"context"
	"errors"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tensors"
)

// Views is the name under which hellos list, among codecs, that a proxy gives its peers views of its traffic with them.
const Views = "views"

// MaxView bounds the bytes of a view.
const MaxView = 64 << 10

// ErrNoView says that a peer gives no views: it is of a version without them.
var ErrNoView = errors.New("proxy: the peer runs a version that does not show its half; upgrade it to see both directions here")

// View asks a peer, through the tunnel, for its view of the traffic with this site: at most MaxView bytes, which the peer may have made
// up. It returns when ctx ends.
func (p *Proxy) View(ctx context.Context, peer string) ([]byte, error) {
	return p.inquire(ctx, peer, question{opening: frame.OpeningView, name: Views, lacks: ErrNoView, most: MaxView})
}

// answerView answers a peer that asks for a view.
func (p *Proxy) answerView(peer string, in Incoming, accept func() Stream) {
	var text []byte
	if p.config.View != nil {
		text = p.config.View(peer)
	}
	if len(text) == 0 || len(text) > MaxView {
		in.Refuse(frame.RefusedBadOpening, "no view of the traffic is given")
		return
	}
	reply(text, accept)
}

// TensorSummary has the tensors that this proxy has sent to a peer, the largest one by one.
type TensorSummary = tensors.Summary

// TensorGroup sums up tensors that are alike.
type TensorGroup = tensors.Group

// Summary lists the tensors that have sent most bytes to a peer, at most limit, and sums up the others; "": to all peers.
func (p *Proxy) Summary(peer string, limit int) TensorSummary {
	return p.env.Tensors.Summary(peer, limit)
}

// Tensor returns one tensor by its ID; false: it is not listed any more.
func (p *Proxy) Tensor(id uint64) (TensorInfo, bool) {
	t, ok := p.env.Tensors.ByID(id)
	if ok {
		list := []TensorInfo{t}
		p.addTrials(list)
		t = list[0]
	}
	return t, ok
}
