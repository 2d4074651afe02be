package site

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/prober"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// probed sees the collectives that the processes on this host call whose connections are carried. A process of its own,
// which begin starts, does so. The programs are loaded for the first connection.
type probed struct {
	log     *slog.Logger
	prober  *prober.Client // nil: there is none
	without error          // why there is none; nil: there is one
	closing context.Context
	close   context.CancelFunc
	working sync.WaitGroup

	loading sync.Mutex // guards the fields below
	tried   bool       // to load the programs
	loaded  bool       // the programs are

	seen map[counted]sight // watch's alone

	mu     sync.Mutex // guards the fields below, and is never held while the prober is asked: new connections take it
	closed bool
	unseen map[int]string // why processes are not seen, by their numbers, as the log says

	processes      prometheus.Gauge
	calls          prometheus.Counter
	buckets        prometheus.Counter
	contradictions prometheus.Counter
	failures       prometheus.Counter
	ended          prometheus.Gauge
}

// A counted process is one whose calls are seen and counted: a *prober.Process.
type counted interface {
	Pid() int
	Name() string
	Ended() string // "": it has not
	Proved() bool  // messages of a connection have agreed with the calls, which prove gradients
	Counts() (probe.Counts, error)
}

// A sight counts the calls of a process that were seen.
type sight struct {
	counts  probe.Counts
	verdict string // as the log says; "": too few are known
}

// probesJobs reports whether the jobs' processes can be on this host.
func probesJobs(c *config.Config) bool {
	return c.Intercept.Probes && (c.Intercept.Mode == config.ModeCgroup || c.Intercept.Mode == config.ModeRedirect)
}

func newProbed(reg prometheus.Registerer, log *slog.Logger) *probed {
	p := &probed{
		log: log, seen: map[counted]sight{}, unseen: map[int]string{},
		processes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_probe_processes",
			Help: "Processes whose collectives are seen."}),
		calls: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_probe_calls_total",
			Help: "Collectives that were seen and look like all-reduces on the wire, as of the last second."}),
		buckets: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_probe_buckets_total",
			Help: "Those of them that DistributedDataParallel calls for its buckets of gradients."}),
		contradictions: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_probe_contradictions_total",
			Help: "Processes whose connections carried something else than they have called: nothing is proved for them any more."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_probe_failures_total",
			Help: "Connections with collectives whose process is not seen; the log says why."}),
		ended: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_probe_ended",
			Help: "1: the process that probes has ended, so that nothing is proved any more until a restart."}),
	}
	p.closing, p.close = context.WithCancel(context.Background())
	reg.MustRegister(p.processes, p.calls, p.buckets, p.contradictions, p.failures, p.ended)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gradproxy_probe_late_seconds",
		Help: "Time since the first question in a row that the process that probes did not answer in time: values whose calls are not known travel exactly; 0: it answers."}, p.late))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gradproxy_probe_timeouts_total",
		Help: "Questions that the process that probes did not answer in time."}, p.timeouts))
	return p
}

// late returns the seconds for which the process that probes has not answered in time. It must come after begin, or
// without one.
func (p *probed) late() float64 {
	if p.prober == nil {
		return 0
	}
	return p.prober.Late().Seconds()
}

// timeouts returns the number of questions without an answer in time, under the condition of late.
func (p *probed) timeouts() float64 {
	if p.prober == nil {
		return 0
	}
	return float64(p.prober.Timeouts())
}

// Close removes the programs. Questions that wait for an answer of the prober return with its end.
func (p *probed) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.close()
	var err error
	if p.prober != nil {
		err = p.prober.Close()
	}
	p.working.Wait()
	return err
}

// start runs f, unless Close was called.
func (p *probed) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.working.Go(f)
	}
}

// of returns the calls of the process at the other end of a connection, which sees it as one with far or with conn's
// own address. They are there once the process is found.
func (p *probed) of(conn syscall.Conn, far netip.AddrPort) parser.Calls {
	c := &calls{probed: p}
	p.start(func() { c.find(conn, far) })
	return c
}

// begin starts the process that probes, with this process's rights, unless permitted says that they do not suffice. It
// must come before confinement.
func (p *probed) begin(permitted error) {
	if p.without = permitted; permitted != nil {
		return
	}
	p.prober, p.without = prober.Start(p.log, func(err error) {
		p.ended.Set(1)
		p.log.Error("the process that probes has ended, and only a restart brings another: nothing is proved any more, and sums travel exactly, except in jobs with sums: gradients", "err", err)
	})
	if p.without != nil {
		p.log.Error("the process that probes cannot be started", "err", p.without)
		return
	}
	p.log.Info("jobs are probed by a process of its own", "pid", p.prober.Pid())
}

// errLossless is why nothing is probed for rules that have come later.
var errLossless = errors.New("when this process started no rule could lose anything, so it started no process that probes: restart it")

// errUnloaded is the error of processes that are not seen for the reason that open has logged.
var errUnloaded = errors.New("the programs that see collectives are not loaded")

// open loads the programs, unless that has been tried. prober.ErrLate: it has to be tried again.
func (p *probed) open() error {
	p.loading.Lock()
	defer p.loading.Unlock()
	if !p.tried {
		err := p.without
		if p.prober != nil {
			err = p.prober.Load()
		}
		if errors.Is(err, prober.ErrLate) {
			return err
		}
		p.tried, p.loaded = true, err == nil
		if p.closing.Err() != nil {
			return errUnloaded
		}
		if err != nil {
			p.log.Warn("the collectives of jobs are not seen: their sums travel exactly, except in jobs with sums: gradients", "err", err)
		} else {
			p.start(p.watch)
		}
	}
	if !p.loaded {
		return errUnloaded
	}
	return nil
}

// find finds the process at the other end of a connection, once the programs are loaded.
func (p *probed) find(conn syscall.Conn, far netip.AddrPort) (process *prober.Process, pid int, err error) {
	if err := p.open(); err != nil {
		return nil, 0, err
	}
	return p.prober.Find(conn, far)
}

// watch forgets the processes that have ended, and logs the verdicts on the others.
func (p *probed) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.look()
		case <-p.closing.Done():
			return
		}
	}
}

func (p *probed) look() {
	for process := range p.seen { // a process that has ended is counted for the last time
		p.count(process)
	}
	living := p.prober.Living()
	p.processes.Set(float64(len(living)))
	seen := map[counted]sight{}
	for _, process := range living {
		p.count(process)
		seen[process] = p.seen[process]
	}
	p.seen = seen
}

// count counts the calls of a process, and logs the verdict on it when that is new.
func (p *probed) count(process counted) {
	now, err := process.Counts()
	if err != nil {
		return
	}
	was := p.seen[process].counts
	p.calls.Add(float64(now.Reduces - was.Reduces))
	p.calls.Add(float64(now.Others - was.Others))
	p.buckets.Add(float64(now.Buckets - was.Buckets))
	verdict, ended := verdictOn(now, process.Proved()), process.Ended()
	switch {
	case ended != "":
		verdict = unproved
	case verdict == "": // until more is known the last verdict stands
		verdict = p.seen[process].verdict
	}
	switch {
	case verdict == p.seen[process].verdict || strings.HasPrefix(ended, contradicted):
	case ended != "":
		p.log.Warn(verdict, "pid", process.Pid(), "process", process.Name(), "err", errors.New(ended))
	default:
		p.log.Info(verdict, "pid", process.Pid(), "process", process.Name(), "all_reduces", now.Reduces, "buckets", now.Buckets, "others", now.Others)
	}
	p.seen[process] = sight{now, verdict}
}

const (
	enough = 32  // calls that tell how a process sums its gradients
	many   = 512 // buckets in whose messages some should have agreed with the calls
)

const (
	provedBuckets = "a process's calls prove its gradients: DistributedDataParallel sums its buckets"
	unprovedHook  = "a process's gradients are not proved: a communication hook sums memory of its own"
	unprovedFSDP  = "a process's gradients are not proved: its own Python code, as that of FSDP, reduces and scatters them or sums several tensors at once"
	unproved      = "nothing of a process is proved any more"
	unprovedCode  = "a process's sums are not proved to be gradients: its own code calls them"
	unprovedWire  = "a process's gradients are not proved: DistributedDataParallel sums its buckets, and no message has agreed with these calls yet"
)

// verdictOn returns the log's words on the proof by a process's calls; "": too few are known, or no message has agreed
// with them yet. proved: some have.
func verdictOn(c probe.Counts, proved bool) string {
	switch {
	case proved:
		return provedBuckets
	case c.ReducerBuckets >= c.Buckets+enough:
		return unprovedHook
	case c.Buckets >= many:
		return unprovedWire
	case c.Buckets > 0:
		return ""
	case c.Others >= enough:
		return unprovedFSDP
	case c.Reduces >= enough:
		return unprovedCode
	}
	return ""
}

// calls implements parser.Calls for one connection: it has the collectives of the process at the connection's own end.
type calls struct {
	probed  *probed
	process atomic.Pointer[prober.Process] // nil: not found, or not yet
	failed  atomic.Pointer[failure]
}

// A failure is why a process is not seen.
type failure struct {
	pid int // 0: not known either
	err error
}

func (c *calls) find(conn syscall.Conn, far netip.AddrPort) {
	process, pid, err := search(c.probed.closing, conn, func() (*prober.Process, int, error) { return c.probed.find(conn, far) })
	switch {
	case err == nil:
		c.process.Store(process)
	case !errors.Is(err, errUnloaded) && !again(err):
		c.failed.Store(&failure{pid, err})
	}
}

// search looks until the answer is there, unless the connection or closing ends first. A socket that is not found is
// looked for some more times: looks of 21 ms now and then miss one that is there (Linux 6.18: one of some hundred
// connections of a job on a busy machine).
func search(closing context.Context, conn syscall.Conn, look func() (*prober.Process, int, error)) (process *prober.Process, pid int, err error) {
	process, pid, err = look()
	misses := 0
	for pause := time.Millisecond; !prober.Closed(conn); pause = min(2*pause, time.Second) {
		wait := pause
		switch {
		case again(err):
		case errors.Is(err, probe.ErrSocket) && misses < len(missPauses):
			wait = missPauses[misses]
			misses++
		default:
			return process, pid, err
		}
		select {
		case <-time.After(wait):
		case <-closing.Done():
			return nil, 0, err
		}
		process, pid, err = look()
	}
	return process, pid, err
}

// missPauses come before the looks for a socket that is not found.
var missPauses = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}

// again reports whether another look may find the process that this error's look has not found.
func again(err error) bool {
	return errors.Is(err, probe.ErrNotAccepted) || errors.Is(err, prober.ErrLate)
}

// Of implements parser.Calls.
func (c *calls) Of(dst []parser.Call, tag uint32) (all []parser.Call, answered bool) {
	process := c.process.Load()
	if process == nil {
		if f := c.failed.Swap(nil); f != nil { // only connections with collectives are worth a word
			c.probed.miss(f)
		}
		return dst, true
	}
	var room [8]probe.Call
	seen, answered := process.Calls(room[:0], tag)
	for _, call := range seen {
		dst = append(dst, callOf(&call, process.Identity()))
	}
	return dst, answered
}

// maxUnseen bounds the processes that are kept in mind.
const maxUnseen = 4096

// miss counts a connection whose process is not seen, and logs why, once for each process.
func (p *probed) miss(f *failure) {
	p.failures.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unseen) > maxUnseen {
		clear(p.unseen)
	}
	if text := f.err.Error(); p.unseen[f.pid] != text {
		p.unseen[f.pid] = text
		p.log.Info("a process's collectives are not seen, and not proved to be gradients", "pid", f.pid, "err", f.err)
	}
}

// Proved implements parser.Calls.
func (c *calls) Proved() {
	if process := c.process.Load(); process != nil {
		process.Prove()
	}
}

// contradicted begins the reasons of proofs that a connection's bytes have ended, which the log has told by then.
const contradicted = "contradicted: "

// Contradicted implements parser.Calls.
func (c *calls) Contradicted(reason string) {
	if process := c.process.Load(); process != nil && process.End(contradicted+reason) {
		c.probed.contradictions.Inc()
		c.probed.log.Error("a process's connection carries something else than the process has called: nothing of it is proved any more",
			"pid", process.Pid(), "process", process.Name(), "err", errors.New(reason))
	}
}

// scalarTypes are the types of elements by their numbers in PyTorch (c10::ScalarType), as far as Gloo sums them.
var scalarTypes = map[uint8]tensor.DType{
	0: tensor.Uint8, 1: tensor.Int8, 3: tensor.Int32, 4: tensor.Int64, 5: tensor.Float16, 6: tensor.Float32, 7: tensor.Float64, 11: tensor.Uint8, 15: tensor.BFloat16,
}

// callOf returns a call as parsers know it. A type that Gloo does not sum shows a wrong layout, and so a number of
// elements that contradicts the wire. identity is the process's.
func callOf(c *probe.Call, identity uint64) parser.Call {
	call := parser.Call{Source: c.Source, Elements: int(c.Elements), Ranks: c.Ranks}
	if c.Elements == 0 {
		return call
	}
	call.Sum, call.Buffer = c.Op == probe.OpSum || c.Op == probe.OpAverage, c.Storage
	if call.DType = scalarTypes[c.Type]; call.DType == tensor.NoDType {
		call.Elements, call.DType = probe.NoElements, tensor.Uint8
	}
	if c.Bucket {
		call.Caller, call.Member = parser.DDPReducer, parser.Member(c.Member)
		call.Bucket = bucketOf(c, identity)
	}
	return call
}

// bucketOf names the bucket that a call sums. Where no bucket of a process was freed in between, the same memory is the
// same bucket.
func bucketOf(c *probe.Call, identity uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, identity)
	b = binary.LittleEndian.AppendUint32(b, c.Freed)
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(b, c.Storage))
}
