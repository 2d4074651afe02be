//go:build linux

package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// of JSON to stdout, as the programs in integration/testdata do. With RANKS_JOIN=stdin in its environment it prints
// "joins" to stderr once its framework is loaded, and joins the other ranks when its stdin ends.
type Job struct {
	Python  string   // the interpreter
	Program string   // the script
	Args    []string // the same for every rank
	Env     []string // beside the variables that give a process its rank or role
	Ranks   int      // rank r runs at site r modulo the number of sites
	Nodes   []Node   // processes that run instead of ranks, all started at once: node r counts as rank r
	Exec    *Exec    // runs it; nil: it runs by itself
	Under   []string // a command that runs each rank, whose own command follows; nil: none
	Agents  bool     // each rank is started by torchrun
	Lingers bool     // processes of Nodes may hang once all workers have reported, which then is the job's end

	// All ranks start at once. The other ranks join rank 0 when it listens for them, so that none of them meets a
	// closed port. torchrun's agents join by themselves; each of them starts when the first one listens. Some names the
	// ranks to start, which then join at once, instead of all; Port must then be the same at each start of a part of
	// the job.
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
	Collectives int               `json:"collectives"`
	Sums        int               `json:"sums"`        // that are no gradients of DDP
	Inexact     map[string]int    `json:"inexact"`     // of these, by case and kind
	Worst       float64           `json:"worst"`       // error of one of them, over its norm
	Kinds       map[string]Checks `json:"kinds"`       // all of them, by case and kind
	LossyBytes  float64           `json:"lossy_bytes"` // of gradients that must lose something on the wire, over all ranks
	SpareBytes  float64           `json:"spare_bytes"` // of gradients that may lose something besides
}

// Checks are the sums of one kind that a rank has compared with all ranks' inputs.
type Checks struct {
	Sums    int     `json:"sums"`
	Inexact int     `json:"inexact"`
	Worst   float64 `json:"worst"` // error of one of them, over its norm
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
	*process

	hold io.Closer // its stdin, whose end lets it join; nil: it joins when it can

	mu     sync.Mutex
	joins  bool          // its framework is loaded; only one that is held tells
	step   int           // that was reported last; -1: none yet
	report Report        // its own account; zero: none yet
	moved  chan struct{} // closed when one of these changes
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
	ordered := job.Some == nil && job.Nodes == nil
	for _, r := range ranks {
		rank, err := w.startRank(ctx, job, r, ordered && !job.Agents)
		if err == nil {
			run.Ranks = append(run.Ranks, rank)
			if r == 0 && ordered && job.Agents {
				err = rank.listens(ctx, job.Port)
			}
		}
		if err != nil {
			run.Kill()
			return nil, err
		}
	}
	if ordered && !job.Agents {
		if err := run.join(ctx, job.Port); err != nil {
			run.Kill()
			return nil, err
		}
	}
	return run, nil
}

// join lets rank 0 join, and the others once it listens.
func (r *Run) join(ctx context.Context, port int) error {
	first := r.Ranks[0]
	first.hold.Close()
	err := first.wait(ctx, func() bool { return first.joins })
	if err == nil {
		err = first.listens(ctx, port)
	}
	for _, rank := range r.Ranks[1:] {
		rank.hold.Close()
	}
	return err
}

// startRank starts a rank; held: it waits before it joins.
func (w *WAN) startRank(ctx context.Context, job Job, r int, held bool) (*Rank, error) {
	i, role := job.place(r, len(w.Sites))
	site := w.Sites[i]
	argv := append([]string{job.Python, job.Program}, job.Args...)
	if job.Agents {
		argv = job.torchrun(w, r)
	}
	if job.Exec != nil {
		argv = job.Exec.command(i, argv)
	}
	argv = slices.Concat(job.Under, argv)
	rank := &Rank{number: r, role: role, ctx: ctx, began: time.Now(), step: -1, moved: make(chan struct{})}
	return rank, w.begin(rank, site, job, argv, job.environment(w, r, site), held)
}

// begin starts the process of a rank; held: it waits before it joins.
func (w *WAN) begin(rank *Rank, site *Site, job Job, argv, env []string, held bool) (err error) {
	cmd := site.CommandContext(rank.ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(append(cmd.Env, env...), job.Env...)
	if held {
		cmd.Env = append(cmd.Env, "RANKS_JOIN=stdin")
		if rank.hold, err = cmd.StdinPipe(); err != nil {
			return fmt.Errorf("testbed: %w", err)
		}
	}
	cmd.Stdout = &tail{see: rank.readReport}
	rank.process, err = startProcess(cmd, rank.see)
	return err
}

// listens waits until the rank listens on a TCP port. It fails with ctx; a rank that ends says itself why. To look
// costs the kernel a walk through the whole table of connections, so the waits between looks are twenty times as long
// as a look takes.
func (r *Rank) listens(ctx context.Context, port int) error {
	const listen = "0A" // TCP_LISTEN of Linux's tcp_states.h
	for {
		looked := time.Now()
		for _, family := range []string{"tcp", "tcp6"} {
			// The table of the namespace that the process is in. Fields: number, local address:port in hex, remote,
			// state.
			table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.cmd.Process.Pid, family))
			for line := range strings.Lines(string(table)) {
				f := strings.Fields(line)
				if len(f) > 3 && f[3] == listen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
					return nil
				}
			}
		}
		select {
		case <-time.After(max(20*time.Millisecond, min(20*time.Since(looked), time.Second))):
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
	if job.Lingers && run.report(ctx) {
		late := time.AfterFunc(lingering, run.Kill)
		defer late.Stop()
		return run.Wait(), nil
	}
	results := run.Wait()
	return results, Failures(results)
}

// lingering is how long processes of a job that lingers may take to end once all workers have reported.
const lingering = 5 * time.Second

// report waits until all workers have reported, and returns false if one ends before, or with ctx.
func (r *Run) report(ctx context.Context) bool {
	for _, rank := range r.Ranks {
		if rank.role == Worker && rank.wait(ctx, func() bool { return rank.report.Job != "" }) != nil {
			return false
		}
	}
	return true
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
	if err := r.wait(ctx, func() bool { return r.step >= k }); err != nil {
		return fmt.Errorf("testbed: step %d: %w", k, err)
	}
	return nil
}

// wait waits until the rank's stdout and stderr have told that done is so, which is called with mu locked. It fails if
// the rank ends before, and with ctx.
func (r *Rank) wait(ctx context.Context, done func() bool) error {
	for {
		ended := r.ended() // and so has its output
		r.mu.Lock()
		step, moved, done := r.step, r.moved, done()
		r.mu.Unlock()
		switch {
		case done:
			return nil
		case ended:
			return fmt.Errorf("rank %d ended after step %d:\n%s", r.number, step, r.log)
		}
		select {
		case <-moved:
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("rank %d is at step %d: %w", r.number, step, context.Cause(ctx))
		}
	}
}

// see takes note of a line of the rank's stderr.
func (r *Rank) see(line string) {
	if line == "joins" {
		r.note(func() { r.joins = true })
	}
	number, found := strings.CutPrefix(line, "step ")
	if step, err := strconv.Atoi(number); found && err == nil {
		r.note(func() { r.step = step })
	}
}

// readReport takes note of a line of the rank's stdout, where frameworks print too.
func (r *Rank) readReport(line string) {
	var report Report
	if json.Unmarshal([]byte(line), &report) == nil && report.Job != "" {
		r.note(func() { r.report = report })
	}
}

// note changes what is known of the rank, and wakes who waits for that.
func (r *Rank) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Report = r.report
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
