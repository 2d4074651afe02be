package send

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
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

// A connection lets go of the memories that were forgotten for want of room: else its maps and its slots would keep
// them beyond the limit, as long as it lives.
func TestForgottenTensorsAreLetGo(t *testing.T) {
	const tensors, held, size = 40, 4, 64 << 10
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"})
	full := residual.New(1<<30, residual.Events{})
	full.Dense("", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: size}, false)
	_, _, each := full.Held()
	s.env.Residuals = residual.New(held*each, residual.Events{})
	r := rand.New(rand.NewPCG(1, 2))
	var reachable atomic.Int64
	for n := range uint64(tensors) {
		x := tensor.Tensor{Key: n + 1, Role: tensor.Gradient, Proof: tensor.ByWire, DType: tensor.Float32, Size: size, Hold: size}
		for range 2 {
			if err := s.cut.tensor(x, append(make([]byte, frame.MaxHeader), gradient(r, size/4)...), nil); err != nil {
				t.Fatal(err)
			}
		}
		reachable.Add(1)
		runtime.AddCleanup(s.choose.past.dense[x.Key], func(n *atomic.Int64) { n.Add(-1) }, &reachable)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	const waiting = 1 // the last value's, while the connection has no further one
	for began := time.Now(); reachable.Load() > held+waiting; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(began) > 10*time.Second {
			t.Fatalf("%d tensors are reachable, %d are held", reachable.Load(), held)
		}
	}
	if dense, _, bytes := s.env.Residuals.Held(); dense != held || bytes != held*each {
		t.Errorf("%d tensors in %d bytes are remembered", dense, bytes)
	}
	runtime.KeepAlive(s)
}
