package proxy

import (
	"context"

	"github.com/gradproxy/gradproxy/proxy/inquiry"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// Excerpt asks a peer, through the tunnel, for the excerpt of its settings that is about this site. The excerpt has at
// most MaxExcerpt bytes, and the peer may have made it up. Excerpt returns when ctx ends.
func (p *Proxy) Excerpt(ctx context.Context, peer string) ([]byte, error) {
	return inquiry.Excerpt.Ask(ctx, peer, p.config.PeerCodecs, p.config.Open)
}

// View asks a peer, through the tunnel, for its view of the traffic with this site. The view has at most MaxView bytes,
// and the peer may have made it up. View returns when ctx ends.
func (p *Proxy) View(ctx context.Context, peer string) ([]byte, error) {
	return inquiry.View.Ask(ctx, peer, p.config.PeerCodecs, p.config.Open)
}

// A TensorInfo answers "why was this not compressed?" for one tensor.
type TensorInfo = tensors.Info

// A TensorSummary has the tensors that this proxy has sent to a peer: the largest one by one, the others in groups.
type TensorSummary = tensors.Summary

// A TensorGroup sums up tensors that are alike.
type TensorGroup = tensors.Group

// Summary lists the tensors of which most bytes were sent to a peer, at most limit, and sums up the others. If peer is
// "" it counts all peers.
func (p *Proxy) Summary(peer string, limit int) TensorSummary {
	return p.env.Tensors.Summary(peer, limit)
}

// Tensor returns the tensor with an ID, and false if the tensor is not listed any more.
func (p *Proxy) Tensor(id uint64) (TensorInfo, bool) {
	t, ok := p.env.Tensors.ByID(id)
	if ok {
		list := []TensorInfo{t}
		p.trials.AddTo(list)
		t = list[0]
	}
	return t, ok
}

// Tensors lists the tensors that this proxy has sent, largest first.
func (p *Proxy) Tensors() []TensorInfo {
	list := p.env.Tensors.List()
	p.trials.AddTo(list)
	return list
}

// WithTrials returns the summary with the results of the candidates for its largest tensors.
func (p *Proxy) WithTrials(s TensorSummary) TensorSummary {
	p.trials.AddTo(s.Largest)
	return s
}

// Shadow reports on the candidates of Settings.Shadow. It returns false if there are none.
func (p *Proxy) Shadow() (trials.Report, bool) {
	return p.trials.Report(p.config.Metrics.groups, p.env.Tensors.List)
}
