// Package estimate counts the bytes that a proxy would hand to the tunnel, without one: a dry run.
//
// Connections that were recorded go the way of connections that are carried, through policy, content check, block
// cutter and encoders with their feedback, and the frames are measured and dropped. The same bytes always give the same
// sizes.
//
// An Estimator takes as ideal the parts of a live path that it cannot know: no block waits in vain for its rest, coding
// is always fast enough, and the peer has every codec unless FlowTo is told otherwise. Values that the peer holds are
// differences to earlier ones of the same direction, and cross once for each host that receives them: which hosts share
// a proxy is not known.
package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/send"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Config has the parts of an Estimator. Codecs and Policy are needed.
type Config struct {
	Codecs    func(text string) (codecs.Codec, error)
	Protocols []parser.Protocol // of the flows: their Traits say whose tensors outlive a connection
	Policy    policy.Policy
	Memory    int64 // bytes that are under way. 0: 256 MiB
	Residuals int64 // bytes of the memory of tensors that may lose something, and of the values that hosts hold. 0: 1 GiB
	Lasting   bool  // that memory outlives the flows, whatever their protocol
}

// An Estimator counts bytes. Its flows are not safe for concurrent use with each other.
type Estimator struct {
	env     *path.Env
	values  *cache.DryRun
	quality *qualities
	flows   uint64
}

// New returns an Estimator. The caller must Close it.
func New(cfg Config) (*Estimator, error) {
	if cfg.Codecs == nil || cfg.Policy == nil {
		return nil, errors.New("estimate: Codecs and Policy are needed")
	}
	lossless, err := cfg.Codecs("lossless")
	if err != nil {
		return nil, fmt.Errorf("estimate: %w", err)
	}
	bytes, residuals := cmp.Or(cfg.Memory, 256<<20), cmp.Or(cfg.Residuals, 1<<30)
	lines, _ := tensors.Beside(residuals)
	quality := new(qualities)
	env := &path.Env{
		Buffers: new(memory.Pool), Sending: memory.NewBudget(bytes), Receiving: memory.NewBudget(bytes), MemoryWait: memory.Wait,
		Pool: pipe.NewPool(1), Cores: 1, Lossless: lossless, Codecs: cfg.Codecs,
		Policy:      func() policy.Policy { return cfg.Policy },
		Lasting:     lasting(&cfg),
		Residuals:   residual.New(residuals, residual.Events{Forgot: func(int) {}, ForgotRows: func(int) {}}),
		Tensors:     &tensors.Table{Max: lines},
		Connections: func() int { return 0 },
		Metrics:     quality,
	}
	env.Pool.Close() // so that whoever sends works as well, and can measure its processor time
	values := cache.NewDryRun(cache.Config{Room: residuals, Codecs: cfg.Codecs, Lossless: lossless, Workers: env.Pool, Pool: env.Buffers,
		Sending: env.Sending, Receiving: env.Receiving, Metrics: quality, Log: discard})
	return &Estimator{env: env, values: values, quality: quality}, nil
}

// discard is the log of flows: the same defects are logged where connections are carried.
var discard = slog.New(slog.DiscardHandler)

// lasting returns path.Env.Lasting of a Config.
func lasting(cfg *Config) func(protocol string) bool {
	reconnects := map[string]bool{}
	for _, p := range cfg.Protocols {
		reconnects[p.String()] = p.Traits().Reconnects
	}
	all := cfg.Lasting
	return func(protocol string) bool { return all || reconnects[protocol] }
}

// Quality returns the effects of the codecs on values of a role since the last call.
func (r *Estimator) Quality(role tensor.Role) Quality { return r.quality.take(role) }

// Short reports whether Config.Residuals was too little to remember all tensors that may lose something, so that more
// of them travelled exactly than with more memory.
func (r *Estimator) Short() bool { return r.env.Residuals.Short() }

// Close ends it.
func (r *Estimator) Close() { r.env.Pool.Close() }

// Flow begins a direction of a connection.
func (r *Estimator) Flow(f policy.Flow) *Flow { return r.FlowTo(f, "", nil) }

// FlowTo is Flow for bytes to a host, which holds values that were sent to it before; "": it holds none. has lists the
// names of the codecs and of the frames that the peer in front of the host takes, as its hello says; nil: all.
func (r *Estimator) FlowTo(f policy.Flow, host string, has []string) *Flow {
	r.flows++
	flow := &Flow{buffers: r.env.Buffers}
	c := &path.Conn{Env: r.env, Stream: &flow.sink, PeerCodecs: has, Job: f.Job, Tag: frame.Tag{Number: r.flows, Mine: true}, Log: discard}
	if host != "" {
		flow.values = r.values
		c.Values = valuesOf{r.values, host}
	}
	flow.conn, flow.sender = c, send.Detached(c, f, nil)
	return flow
}
