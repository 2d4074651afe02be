package send

import (
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// A lossyContribution notes a block that may lose something, so that it is compared with the result.
type lossyContribution struct {
	conn     *path.Conn
	job      *residual.Job
	past     *residual.Dense
	residual []float32 // of the block
	earlier  tensor.Sample
	sample   tensor.Contribution
}

func (l *lossyContribution) before(*block) { l.earlier = l.past.SampleResidual(l.residual) }

func (l *lossyContribution) after(b *block) {
	left := l.past.SampleResidual(l.residual)
	l.sample.Lost(&l.earlier, &left)
	l.conn.Sums.Put(l.job, b.plan.t, &l.sample)
}
