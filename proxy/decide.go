package proxy

import (
	"errors"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// decide asks the policy, whether what it says has paid so far, and for the memory that loss needs.
func (s *sender) decide(c *tensorCut) {
	rtt, rate := s.stream.Path()
	m := policy.Measured{Rate: int64(rate), RTT: rtt}
	c.choice = s.shared.policy().Choose(s.flow, c.t, m)
	s.codeKeys(c)
	pays := sync.OnceValue(func() bool { return c.record.Gain.Pays(m, s.shared.cores) }) // which counts how often it is asked
	switch {
	case c.choice.Codec == nil:
	case s.lacks(c.choice.Codec.String()):
		c.choice = policy.Choice{Codec: s.shared.lossless, Why: tensor.PeerLacks}
		if s.lacks(s.shared.lossless.String()) {
			c.choice.Codec = nil
		}
	case s.shares(c.t) && (c.choice.Closed || !codecs.Lossy(c.choice.Codec) && (pays() || s.shared.cache.Peer(s.peer).Predicts(s.job, c.t.Base))):
		c.shared = true
	case c.choice.Closed:
		c.choice = policy.Choice{Codec: s.shared.lossless, Why: tensor.NoReference}
	case codecs.Lossy(c.choice.Codec) && sparse(c.t):
		if why := s.decideRows(c); why != tensor.OK {
			c.choice = policy.Choice{Codec: s.shared.lossless, Why: why}
		}
	case codecs.Lossy(c.choice.Codec):
		if c.memory = s.remember(c.t); c.memory == nil {
			c.choice = policy.Choice{Codec: s.shared.lossless, Why: tensor.NoMemory}
		} else {
			c.flush = c.memory.Begin(c.choice.Flush)
		}
	case s.mayBecomeLossy(c.t, m): // the first value that may lose something then has one to be compared with
		c.watch = s.remember(c.t)
	case !pays():
		c.choice = policy.Choice{Why: tensor.NoGain}
	}
	c.text = policy.Verbatim
	if c.choice.Codec != nil {
		c.text = c.choice.Codec.String()
	}
}

// mayBecomeLossy reports whether t will lose something if it proves to be a gradient.
func (s *sender) mayBecomeLossy(t tensor.Tensor, m policy.Measured) bool {
	if t.Why != tensor.Learning || t.Key == 0 || t.Keys != 0 {
		return false
	}
	t.Role, t.Why = tensor.Gradient, tensor.OK
	c := s.shared.policy().Choose(s.flow, t, m)
	return c.Codec != nil && codecs.Lossy(c.Codec)
}

// shares reports whether the peer should hold the values of t: the next is predicted by the last, or is the same.
func (s *sender) shares(t tensor.Tensor) bool {
	return t.Base != 0 && t.Size >= policy.MinShared && s.shared.Values > 0 && !s.lacks(SharedValues)
}

// remember returns what is remembered of a tensor that may lose something, and notes that this connection uses it.
func (s *sender) remember(t tensor.Tensor) *residual.Dense {
	m := s.shared.residuals.Dense(s.job, t, s.shared.lasting[s.flow.Protocol])
	if m != nil {
		if s.memories == nil {
			s.memories = map[uint64]*residual.Dense{}
		}
		s.memories[t.Key] = m
	}
	return m
}

// forget drops what is remembered of this connection's tensors, where its protocol never connects again.
func (s *sender) forget() {
	if s.shared.lasting[s.flow.Protocol] && !errors.Is(s.ended, parser.ErrForget) {
		return
	}
	for _, m := range s.memories {
		s.shared.residuals.Drop(m)
	}
	for _, m := range s.rowMemories {
		s.shared.residuals.DropRows(m)
	}
	clear(s.memories)
	clear(s.rowMemories)
}
