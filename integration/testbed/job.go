//go:build linux

package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Job is a training program of one process a rank, which prints "step K" to stderr after step K and at the end a line
// of JSON to stdout, as the programs in integration/testdata do.
type Job struct {
	Python  string   // the interpreter
	Program string   // the script
	Args    []string // the same for every rank
	Env     []string // beside the variables that give a process its rank or role
	Ranks   int      // rank r runs at site r modulo the number of sites
	Nodes   []Node   // processes that run instead of ranks, all started at once: node r counts as rank r
	Exec    *Exec    // runs it; nil: it runs by itself
	Agents  bool     // each rank is started by torchrun
	Lingers bool     // processes of Nodes may hang once all workers have reported, which then is the job's end

	// The other ranks start when rank 0 listens for them, so that none of them meets a closed port. Some names the ranks
	// to start, at once, instead of all; Port must then be the same at each start of a part of the job.
	Some []int
	Port int // rank 0 listens on; 0: one by chance
}

// A Result is how a rank ended.
type Result struct {
	Rank     int
	Role     string         // of a Node; "": a rank
	ExitCode int            // -1: ended by Signal
	Signal   syscall.Signal // 0: none
	Killed   error          // why this program killed it: Kill, or the end of the context; nil: it did not
	Stderr   string         // its last lines
	Wall     time.Duration
	CPU      time.Duration // user and system

	// From the rank's JSON line; zero values if it printed none.
	Report
}

// A Report is a rank's own account, the line of JSON that it prints.
type Report struct {
	Job              string    `json:"job"`
	Version          string    `json:"version"` // the framework's
	World            int       `json:"world"`
	Parameters       int       `json:"parameters"`
	Steps            int       `json:"steps"`       // that it made
	DenseBytes       int       `json:"dense_bytes"` // of the parameters that each step sends whole, as MXNet's jobs report
	Loss             float64   `json:"loss"`
	Accuracy         float64   `json:"accuracy"`
	Seconds          float64   `json:"seconds"`      // from joining to the end, imports left out
	StepSeconds      float64   `json:"step_seconds"` // median
	EachStepSeconds  []float64 `json:"each_step_seconds"`
	AllReduceSeconds []float64 `json:"all_reduce_seconds"`
	WeightsSHA256    string    `json:"weights_sha256"`
	MetricSHA256     string    `json:"metric_sha256"`
	Unsupported      string    `json:"unsupported"` // why this framework cannot run the mode

	// Of jobs that check their sums.
	Collectives int            `json:"collectives"`
	Sums        int            `json:"sums"`        // that are no gradients of DDP
	Inexact     map[string]int `json:"inexact"`     // of these, by case and kind
	Worst       float64        `json:"worst"`       // error of one of them, over its norm
	LossyBytes  float64        `json:"lossy_bytes"` // of gradients that must lose something on the wire, over all ranks
	SpareBytes  float64        `json:"spare_bytes"` // of gradients that may lose something besides
}

// A Run is a job under way.
type Run struct {
	Ranks []*Rank
}

// A Rank is one process of a job under way.
type Rank struct {
	number int
	role   string
	ctx    context.Context // kills it
	began  time.Time
	stdout bytes.Buffer
	*process

	mu    sync.Mutex
	step  int           // that was reported last; -1: none yet
	moved chan struct{} // closed when step changes
}

// Start starts the ranks of job, which end with ctx at the latest.
func (w *WAN) Start(ctx context.Context, job Job) (*Run, error) {
	run := &Run{}
	if job.Port == 0 {
		job.Port = 20000 + rand.IntN(10000) // below Linux's ephemeral ports, which Gloo listens on
	}
	if job.Exec != nil && job.Nodes != nil {
		return w.startSites(ctx, job)
	}
	ranks := job.Some
	if ranks == nil {
		ranks = make([]int, job.processes())
		for r := range ranks {
			ranks[r] = r
		}
	}
	for _, r := range ranks {
		rank, err := w.startRank(ctx, job, r)
		if err == nil {
			run.Ranks = append(run.Ranks, rank)
			if r == 0 && job.Some == nil && job.Nodes == nil {
				err = rank.listens(ctx, job.Port)
			}
		}
		if err != nil {
			run.Kill()
			return nil, err
		}
	}
	return run, nil
}

func (w *WAN) startRank(ctx context.Context, job Job, r int) (*Rank, error) {
	i, role := job.place(r, len(w.Sites))
	site := w.Sites[i]
	argv := append([]string{job.Python, job.Program}, job.Args...)
	if job.Agents {
		argv = job.torchrun(w, r)
	}
	if job.Exec != nil {
		argv = job.Exec.command(i, argv)
	}
	rank := &Rank{number: r, role: role, ctx: ctx, began: time.Now(), step: -1, moved: make(chan struct{})}
	return rank, w.begin(rank, site, job, argv, job.environment(w, r, site))
}

// begin starts the process of a rank.
func (w *WAN) begin(rank *Rank, site *Site, job Job, argv, env []string) (err error) {
	cmd := site.CommandContext(rank.ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(append(cmd.Env, env...), job.Env...)
	cmd.Stdout = &rank.stdout
	rank.process, err = startProcess(cmd, rank.see)
	return err
}

// listens waits until the rank listens on a TCP port. It fails with ctx; a rank that ends says itself why.
func (r *Rank) listens(ctx context.Context, port int) error {
	const listen = "0A" // TCP_LISTEN of Linux's tcp_states.h
	for {
		for _, family := range []string{"tcp", "tcp6"} {
			// The table of the namespace that the process is in. Fields: number, local address:port in hex, remote, state.
			table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.cmd.Process.Pid, family))
			for line := range strings.Lines(string(table)) {
				f := strings.Fields(line)
				if len(f) > 3 && f[3] == listen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
					return nil
				}
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("testbed: rank %d does not listen: %w", r.number, context.Cause(ctx))
		}
	}
}

// Run runs job to its end. The error names the ranks that failed and shows their output.
func (w *WAN) Run(ctx context.Context, job Job) ([]Result, error) {
	run, err := w.Start(ctx, job)
	if err != nil {
		return nil, err
	}
	results := run.Wait()
	if job.Lingers && reported(results) {
		return results, nil
	}
	return results, Failures(results)
}

// reported tells whether all workers have.
func reported(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return r.Role == Worker && r.Job == "" })
}

// Failures returns an error that names the ranks that did not end with a report, and nil if there are none.
func Failures(results []Result) error {
	var errs []error
	for _, r := range results {
		if r.ExitCode != 0 || r.Job == "" {
			errs = append(errs, fmt.Errorf("rank %d %s: %s after %.1f s; its last lines:\n%s", r.Rank, r.Role, r.how(), r.Wall.Seconds(), r.Stderr))
		}
	}
	return errors.Join(errs...)
}

// how says how the rank ended.
func (r *Result) how() string {
	switch {
	case r.Killed != nil:
		return fmt.Sprintf("killed by the test bed (%v)", r.Killed)
	case r.Signal != 0:
		return fmt.Sprintf("ended by signal %d (%v)", r.Signal, r.Signal)
	case r.Unsupported != "":
		return fmt.Sprintf("exit code %d (%s)", r.ExitCode, r.Unsupported)
	case r.ExitCode == 0:
		return "exit code 0 without a report"
	}
	return fmt.Sprintf("exit code %d", r.ExitCode)
}

// Wait waits until all ranks have ended.
func (r *Run) Wait() []Result {
	var results []Result
	for _, rank := range r.Ranks {
		results = append(results, rank.Wait())
	}
	return results
}

// Kill ends all ranks.
func (r *Run) Kill() {
	for _, rank := range r.Ranks {
		rank.Kill()
	}
}

// Step waits until every rank has done step k, counted from 0. It fails if a rank ends before, and with ctx.
func (r *Run) Step(ctx context.Context, k int) error {
	for _, rank := range r.Ranks {
		if err := rank.Step(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the rank as kill -9 does.
func (r *Rank) Kill() { r.kill() }

// Step waits until the rank has done step k. It fails if the rank ends before, and with ctx.
func (r *Rank) Step(ctx context.Context, k int) error {
	for {
		r.mu.Lock()
		step, moved := r.step, r.moved
		r.mu.Unlock()
		if step >= k {
			return nil
		}
		select {
		case <-moved:
		case <-r.done:
			return fmt.Errorf("testbed: rank %d ended after step %d, before step %d:\n%s", r.number, step, k, r.log)
		case <-ctx.Done():
			return fmt.Errorf("testbed: rank %d is at step %d, not yet %d: %w", r.number, step, k, context.Cause(ctx))
		}
	}
}

// see takes note of a line of the rank's stderr.
func (r *Rank) see(line string) {
	number, found := strings.CutPrefix(line, "step ")
	step, err := strconv.Atoi(number)
	if !found || err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
	close(r.moved)
	r.moved = make(chan struct{})
}

func signalOf(state *os.ProcessState) syscall.Signal {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// Wait waits until the rank has ended.
func (r *Rank) Wait() Result {
	<-r.done
	cpu, _ := r.cpu() // of an ended process: no error
	result := Result{
		Rank:     r.number,
		Role:     r.role,
		ExitCode: r.cmd.ProcessState.ExitCode(),
		Signal:   signalOf(r.cmd.ProcessState),
		Killed:   r.whoKilled(),
		Stderr:   r.log.String(),
		Wall:     r.end.Sub(r.began),
		CPU:      cpu,
	}
	for line := range bytes.Lines(r.stdout.Bytes()) { // frameworks print there too
		var report Report
		if json.Unmarshal(line, &report) == nil && report.Job != "" {
			result.Report = report
		}
	}
	return result
}

// whoKilled returns why this program has killed the rank, nil if it has not.
func (r *Rank) whoKilled() error {
	switch {
	case signalOf(r.cmd.ProcessState) != syscall.SIGKILL:
		return nil
	case r.killed.Load():
		return errKilled
	}
	return context.Cause(r.ctx) // nil: someone else did, as the kernel does when memory is short
}

var errKilled = errors.New("on demand")

// CPU returns the processor time, user and system, of all ranks so far.
func (r *Run) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, rank := range r.Ranks {
		used, err := rank.cpu()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
