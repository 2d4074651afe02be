package trials

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/estimate"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/tensor"
)

// newTrial returns the trial of a candidate, in so many bytes of memory: a dry run with a rule for all tensors that may
// lose something. While there is memory a piece's residual, guard and content check wait from turn to turn, since on
// the path they go on.
func newTrial(codecOf func(text string) (codecs.Codec, error), text string, memory int64) (shadow.Trial, error) {
	codec, err := codecOf(text)
	if err != nil {
		return nil, err
	}
	chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.Gradient, tensor.Aggregate, tensor.State}, Codec: text}}, codecOf)
	if err != nil {
		return nil, err
	}
	e, err := estimate.New(estimate.Config{Codecs: codecOf, Policy: chosen, Memory: memory, Residuals: memory / 2, Lasting: true})
	if err != nil {
		return nil, err
	}
	return &trial{e, codec}, nil
}

// A trial is a shadow.Trial.
type trial struct {
	estimator *estimate.Estimator
	codec     codecs.Codec
}

func (t *trial) Short() bool { return t.estimator.Short() }

func (t *trial) Limit() float64 { return feedback.Limit(t.codec.Traits().ResidualRatio) }

func (t *trial) Close() { t.estimator.Close() }

func (t *trial) Line(f policy.Flow, peer string, has []string) shadow.Line {
	return &line{t, t.estimator.FlowTo(f, peer, has)}
}

// A line is a shadow.Line.
type line struct {
	*trial
	flow *estimate.Flow
}

func (l *line) Close() { l.flow.Close() }

// Send sends a value run by run, as its app did.
func (l *line) Send(t tensor.Tensor, value []byte, runs []shadow.Run) (m shadow.Measure, err error) {
	m.Raw = int64(len(value))
	before := l.flow.Size(t.Role).Wire
	for _, r := range runs {
		t.Hold = r.Hold
		if err = l.flow.Send(value[:r.Len], []parser.Segment{{Len: r.Len, Tensor: t}}); err != nil {
			return m, err
		}
		value, t.Off = value[r.Len:], t.Off+r.Len
	}
	m.Wire = l.flow.Size(t.Role).Wire - before
	q := l.estimator.Quality(t.Role)
	m.Coding, m.Measured, m.Error, m.Residual, m.Behind = q.Coding, q.Measured, q.Error, q.Residual, q.Behind
	m.Exact = !q.Only(l.codec.String())
	return m, nil
}
