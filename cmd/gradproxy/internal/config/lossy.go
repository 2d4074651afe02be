package config

import (
	"math/rand/v2"
	"regexp"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// multiplier finds a fixed sparsity multiplier of 3LC that is large.
var multiplier = regexp.MustCompile(`^3lc\(.*\bs=1\.[5-9]`)

// lossy checks rule i, whose codec loses something: the roles must allow it.
func (k *checker) lossy(i int, where string, codec codecs.Codec) {
	r := &k.Policy[i]
	for _, role := range r.Roles {
		switch role {
		case tensor.Gradient:
		case tensor.State:
			if k.References == 0 {
				k.errorf(r.line, where+".codec", "%s loses something of state, which is only possible as a difference to a value that the peer holds: give references some room, or use lossless", r.Codec)
			}
		case tensor.Aggregate:
			if !slices.ContainsFunc(k.Jobs, r.losesAggregatesOf) {
				k.errorf(r.line, where+".codec", "%s loses something of aggregates, which no job of this rule allows: set aggregates: lossy for the job, or use lossless", r.Codec)
			}
		default:
			k.errorf(r.line, where+".codec", "%s loses something, and %s may lose nothing: use lossless, or name other roles", r.Codec, role)
		}
	}
	if s := multiplier.FindStringSubmatch(codec.String()); s != nil && (len(r.Roles) == 0 || slices.Contains(r.Roles, tensor.Gradient) || slices.Contains(r.Roles, tensor.State)) {
		k.warnf(r.line, where+".codec", "%s lags a dozen gradients behind: in 600 steps s=1.75 cost 0.46 points of accuracy where 3lc cost 0.11 (docs/numbers.md); use int4 or 3lc", r.Codec)
	}
	takesAggregates := k.takesAggregates(i)
	switch {
	case codec.Traits().Unbiased && (takesAggregates || slices.Contains(r.Roles, tensor.State)):
		k.errorf(r.line, where+".codec", "%s is right on average only, which is for gradients: name role: gradient, or use int8 or int4", r.Codec)
	case takesAggregates:
		k.aggregates(r, where, codec)
	}
}

// aggregates checks a rule by which aggregates lose something.
func (k *checker) aggregates(r *Rule, where string, codec codecs.Codec) {
	if r.NoFeedback {
		k.errorf(r.line, where+".feedback", "aggregates cannot do without feedback: replicas would drift apart for ever; leave feedback out, or name role: gradient")
	}
	always, err := k.known.Codec(policy.AggregateCodec)
	if err != nil {
		return
	}
	if lost, usual := loss(codec), loss(always); lost > tooCoarse*usual {
		k.warnf(r.line, where+".codec", "%s is coarse for aggregates, of each value it leaves %.0f %% of the norm to later ones (%s: %.0f %%): the replicas' weights will drift far apart; use int8 or int4",
			r.Codec, 100*lost, always, 100*usual)
	}
}

// flush checks how often a rule flushes. codec is nil if its tensors are not touched.
func (k *checker) flush(r *Rule, where string, codec codecs.Codec) {
	switch {
	case r.FlushEvery == 0:
	case r.FlushEvery == 1:
		k.errorf(r.line, where+".flush_every", "1 makes every value travel exactly: use codec: lossless, or a larger number")
	case codec == nil || !codecs.Lossy(codec):
		k.errorf(r.line, where+".flush_every", "%s loses nothing, so there is no residual: leave flush_every out", r.Codec)
	case codec.Traits().Unbiased:
		k.errorf(r.line, where+".flush_every", "%s has no feedback, so there is no residual: leave flush_every out", r.Codec)
	case r.NoFeedback:
		k.errorf(r.line, where+".flush_every", "without feedback there is no residual: leave one of both out")
	}
}

// losesSumsOf reports whether a rule asks for loss in a job's rings.
func (k *checker) losesSumsOf(r *Rule, j *Job) bool {
	if r.Job != "" && r.Job != j.Name || r.Protocol != "" && r.Protocol != "gloo" || r.Codec == "" || r.Codec == policy.Verbatim {
		return false
	}
	codec, err := k.known.Codec(r.Codec)
	return err == nil && codecs.Lossy(codec) && (len(r.Roles) == 0 || slices.Contains(r.Roles, tensor.Gradient) || slices.Contains(r.Roles, tensor.Aggregate))
}

// losesAggregatesOf reports whether r speaks of a job that lets aggregates lose something.
func (r *Rule) losesAggregatesOf(j Job) bool {
	return j.LossyAggregates && (r.Job == "" || r.Job == j.Name)
}

// takesAggregates reports whether aggregates that may lose something come to rule i: it names them, or names no role
// and no rule before it takes all of them.
func (k *checker) takesAggregates(i int) bool {
	r := k.Policy[i]
	if slices.Contains(r.Roles, tensor.Aggregate) {
		return true
	}
	if len(r.Roles) > 0 || !slices.ContainsFunc(k.Jobs, r.losesAggregatesOf) {
		return false
	}
	r.Roles = []tensor.Role{tensor.Aggregate}
	return !slices.ContainsFunc(k.Policy[:i], func(before Rule) bool { return before.takes(&r) })
}

// tooCoarse is how much more than the usual codec for aggregates one may lose before that is worth a warning.
const tooCoarse = 1.25

// loss returns the loss of a codec on values that are normally distributed, as all but the largest of a gradient's are:
// the norm of the error over the norm of the values. It is 0 for a codec that does not take them.
func loss(c codecs.Codec) float64 {
	const n = 1 << 16
	r := rand.New(rand.NewPCG(1, 2))
	v, raw := make([]float32, n), make([]byte, 4*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	tensor.FromFloat32(raw, v, tensor.Float32)
	residual := make([]float32, n)
	enc, err := feedback.NewEncoder(c, tensor.Float32, residual)
	if err == nil {
		_, err = enc.Append(nil, raw)
	}
	if err != nil {
		return 0
	}
	return feedback.Drift(residual, v)
}
