package send

import (
	"testing"

	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// A peer whose nodes claim another peer's tensors, so that the keys are the same, shares no residual with it, in a job
// that is configured or not; two connections of one peer do.
func TestResidualsBelongToThePeer(t *testing.T) {
	env := &path.Env{Residuals: residual.New(1<<20, residual.Events{}), Lasting: func(string) bool { return true }}
	of := func(job, peer string) *residual.Dense {
		p := &past{direction: &direction{conn: &path.Conn{Env: env, Job: job, Peer: peer}}}
		return p.ofDense(tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000})
	}
	rows := func(job, peer string) *residual.Rows {
		p := &past{direction: &direction{conn: &path.Conn{Env: env, Job: job, Peer: peer}}}
		return p.ofRows(tensor.Tensor{Key: 1, Keys: 2, DType: tensor.Float32, Size: 4000}, 10)
	}
	for _, job := range []string{"", "job"} {
		if of(job, "tokyo") != of(job, "tokyo") || rows(job, "tokyo") != rows(job, "tokyo") {
			t.Errorf("job %q: a peer's connections have residuals of their own", job)
		}
		if of(job, "tokyo") == of(job, "mallory") || rows(job, "tokyo") == rows(job, "mallory") {
			t.Errorf("job %q: two peers share residuals", job)
		}
	}
}
