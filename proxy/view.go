package proxy

import (
	"context"

	"github.com/gradproxy/gradproxy/proxy/inquiry"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// Excerpt asks a peer, through the tunnel, for the excerpt of its settings about this site: at most MaxExcerpt bytes,
// which the peer may have made up. It returns when ctx ends.
func (p *Proxy) Excerpt(ctx context.Context, peer string) ([]byte, error) {
	return inquiry.Excerpt.Ask(ctx, peer, p.config.PeerCodecs, p.config.Open)
}

// View asks a peer, through the tunnel, for its view of the traffic with this site: at most MaxView bytes, which the
// peer may have made up. It returns when ctx ends.
func (p *Proxy) View(ctx context.Context, peer string) ([]byte, error) {
	return inquiry.View.Ask(ctx, peer, p.config.PeerCodecs, p.config.Open)
}

// TensorInfo answers "why was this not compressed?" for one tensor.
type TensorInfo = tensors.Info

// TensorSummary has the tensors that this proxy has sent to a peer, the largest one by one.
type TensorSummary = tensors.Summary

// TensorGroup sums up tensors that are alike.
type TensorGroup = tensors.Group

// Summary lists the tensors that have sent most bytes to a peer, at most limit, and sums up the others; "": to all
// peers.
func (p *Proxy) Summary(peer string, limit int) TensorSummary {
	return p.env.Tensors.Summary(peer, limit)
}

// Tensor returns one tensor by its ID; false: it is not listed any more.
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

// WithTrials adds the results of candidates to the largest tensors of a summary.
func (p *Proxy) WithTrials(s TensorSummary) TensorSummary {
	p.trials.AddTo(s.Largest)
	return s
}

// Shadow reports on the candidates of Settings.Shadow. false: there are none.
func (p *Proxy) Shadow() (trials.Report, bool) {
	return p.trials.Report(p.config.Metrics.groups, p.env.Tensors.List)
}
