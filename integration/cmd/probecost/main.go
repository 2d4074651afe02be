//go:build linux

// Command probecost decides whether probes keep the step time of a real job within 1 %: DistributedDataParallel of
// PyTorch with two ranks on this machine, without proxies or an emulated link, which would hide their effect. Each rank
// has a processor of its own: steps differ half as much there. While one job runs, the probes of package bpf/probe are
// attached and detached in turns, every so many steps. Neighbouring stretches of steps, one with probes and one
// without, make a pair, so that whatever else the machine does meets both alike. After each pair the command compares
// the step times and the processors' times, which a busy machine disturbs less, and it ends as soon as the bounds of
// the change of the step time lie within 1 % or beyond, or at the limit. It exits with 0 only for "yes".
//
// On a machine that others share, steps differ by much more than 1 %. So the command also measures, in the same
// stretches, how long the ranks' calls of c10d::Reducer::all_reduce_bucket take, by a library that it has loaded before
// PyTorch's. Both of a bucket's probes are within that call, and it takes some twentieth of a step, so that the time of
// the probes themselves is known far more exactly. They also take some of the processor's caches from the rest of the
// step. That effect is in the step time and the processors' times alone. The command needs gcc.
//
// With --turns the probes stay attached, and every other step or two goes without them: a library that is loaded before
// PyTorch's enters the two functions just behind the instruction at which a probe is. Neighbouring steps make a pair,
// so that there are some thousand pairs in a minute, and whatever else the machine does disturbs them much less. Run it
// from the root of the checkout, as root:
//
//	go run ./integration/cmd/probecost
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/require/paired"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement names the job, and how long it is measured.
type measurement struct {
	environment string
	model       string // one of torch_models.py; "": an MLP
	hidden      string // widths of the MLP's hidden layers
	optimizer   string
	rate        float64 // of learning
	batch       int     // images a rank and step
	bucketMB    float64
	block       int           // steps of a stretch
	settle      time.Duration // between a change and its stretch
	turns       bool          // steps with probes and without take turns
	buckets     int           // of a step
	limit       time.Duration // of all stretches
	pin         bool          // each rank has a processor of its own
}

func main() {
	m := measurement{}
	flag.StringVar(&m.environment, "environment", "torch215", "PyTorch: torch215 or torch113")
	flag.StringVar(&m.model, "model", "", "conv, transformer or embedding, as in the grid of integration/cmd/accuracy, instead of an MLP")
	flag.StringVar(&m.hidden, "hidden", "512,256", "widths of the MLP's hidden layers")
	flag.StringVar(&m.optimizer, "optimizer", "sgd", "sgd, adam or adamw")
	flag.Float64Var(&m.rate, "lr", 0.05, "learning rate")
	flag.IntVar(&m.batch, "batch", 16, "images a rank and step")
	flag.Float64Var(&m.bucketMB, "bucket-mb", 0.25, "size of DistributedDataParallel's buckets")
	flag.IntVar(&m.block, "block", 60, "steps of a stretch, 10 or more")
	flag.DurationVar(&m.settle, "settle", 700*time.Millisecond, "how long to wait after probes have come or gone: this command itself then has work left, and the kernel")
	flag.BoolVar(&m.turns, "turns", false, "keep the probes attached, and have every other step or two enter the two functions of a bucket behind them, for as long as --limit says (amd64)")
	flag.IntVar(&m.buckets, "buckets", 1, "with --turns: buckets of a step")
	flag.DurationVar(&m.limit, "limit", 8*time.Minute, "how long to try for a verdict")
	flag.BoolVar(&m.pin, "pin", true, "give each rank a processor of its own, so that steps do not differ by where the kernel runs their threads")
	flag.Parse()
	program.Main("probecost", m.run)
}

func (m *measurement) run(ctx context.Context) error {
	if m.block < 10 {
		return fmt.Errorf("--block %d: want 10 steps or more", m.block)
	}
	return program.With("integration/testdata/torch_job.py", func(path, dir string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the job
		ranks, err := m.start(ctx, path, dir)
		if err != nil {
			return err
		}
		follow := m.follow
		if m.turns {
			follow = m.takeTurns
		}
		r, err := follow(ranks)
		if err != nil {
			return err
		}
		fmt.Printf("%.1f sums of a step and rank seen\na step takes %v\nprocessors work on it, for both ranks, %v\n", r.sums, r.time, r.processor)
		if !m.turns {
			fmt.Printf("its calls for buckets take %v\nso the calls with probes make it longer by %v\n", r.calls, r.share())
		}
		fmt.Printf("within %.0f %%: %s\n", 100*tolerance, r.verdict)
		if r.verdict != yes {
			return fmt.Errorf("it is not shown that a step takes less than %.0f %% longer", 100*tolerance)
		}
		return nil
	})
}

// A rank is a process of the job.
type rank struct {
	cmd   *exec.Cmd
	times *times // of its calls of all_reduce_bucket
	turns *turns // its steps, with probes and without

	mu    sync.Mutex
	moved *sync.Cond  // steps has changed
	steps []time.Time // when each has ended
	ended bool        // there will be no more steps
}

// start starts both ranks.
func (m *measurement) start(ctx context.Context, path, dir string) (ranks [2]*rank, err error) {
	python, complete := testbed.Python(m.environment)
	if !complete {
		return ranks, fmt.Errorf("%s is missing: run integration/env/install.sh %[1]s", m.environment)
	}
	compile := compileTimes
	if m.turns {
		compile = compileTurns
	}
	library, err := compile(path, dir)
	if err != nil {
		return ranks, err
	}
	port := strconv.Itoa(20000 + rand.IntN(10000))
	for i := range ranks {
		file := filepath.Join(dir, strconv.Itoa(i))
		times, err := newTimes(file)
		if err != nil {
			return ranks, err
		}
		turns, err := newTurns(file + ".turns")
		if err != nil {
			return ranks, err
		}
		cmd := exec.CommandContext(ctx, python, path, "--steps", strconv.Itoa(1<<30), // until it is killed
			"--hidden", m.hidden, "--optimizer", m.optimizer, "--lr", fmt.Sprint(m.rate), "--bucket-mb", fmt.Sprint(m.bucketMB), "--batch", strconv.Itoa(m.batch))
		if m.model != "" {
			cmd.Args = append(cmd.Args, "--model", m.model)
		}
		cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(i), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1",
			"PYTHONDONTWRITEBYTECODE=1", "LD_PRELOAD="+library, "BUCKET_TIMES="+file, "PROBE_TURNS="+file+".turns", "PROBE_BUCKETS="+strconv.Itoa(m.buckets))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if ranks[i], err = begin(cmd); err != nil {
			return ranks, err
		}
		ranks[i].times, ranks[i].turns = times, turns
		if m.pin {
			if err := pin(cmd.Process.Pid, i); err != nil {
				return ranks, err
			}
		}
	}
	return ranks, nil
}

// pin has a process, which has just begun and so has one thread, run on the n-th of the processors on which this one
// may.
func pin(pid, n int) error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("the processors: %w", err)
	}
	if may.Count() <= n {
		return fmt.Errorf("%d processors are too few for ranks that have one each: try --pin=false", may.Count())
	}
	for cpu := 0; ; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		if n == 0 {
			one.Set(cpu)
			break
		}
		n--
	}
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// begin starts a rank and reads which steps it has made.
func begin(cmd *exec.Cmd) (*rank, error) {
	r := &rank{cmd: cmd}
	r.moved = sync.NewCond(&r.mu)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "step ") {
				r.moves(time.Now(), false)
			}
		}
		r.moves(time.Time{}, true)
		_ = cmd.Wait()
	}()
	return r, nil
}

func (r *rank) moves(at time.Time, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = ended; !ended {
		r.steps = append(r.steps, at)
	}
	r.moved.Broadcast()
}

// wait waits until so many steps have ended, and returns how many have.
func (r *rank) wait(steps int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.steps) < steps && !r.ended {
		r.moved.Wait()
	}
	if len(r.steps) < steps {
		return 0, fmt.Errorf("the job has ended after %d steps", len(r.steps))
	}
	return len(r.steps), nil
}

// seconds returns the time that each step of a range took. The range must not begin with the job's first step.
func (r *rank) seconds(first, end int) (all []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := first; i < end; i++ {
		all = append(all, r.steps[i].Sub(r.steps[i-1]).Seconds())
	}
	return all
}

// follow attaches and detaches the probes in turns until there is a verdict, or for as long as is allowed. The steps
// during which probes come or go belong to no stretch.
func (m *measurement) follow(ranks [2]*rank) (r result, err error) {
	if _, err := ranks[0].wait(settling); err != nil { // both have loaded PyTorch
		return r, err
	}
	var stretches []stretch
	seen, steps := 0, 0
	for began, i := time.Now(), 0; ; i++ {
		s, n, err := m.stretch(ranks, i%4 == 1 || i%4 == 2)
		if err != nil {
			return r, err
		}
		stretches = append(stretches, s)
		if s.with {
			seen, steps = seen+n, steps+m.block
			r.sums = float64(seen) / float64(2*steps)
		}
		last := time.Since(began) > m.limit
		if i%2 == 0 || i < 2*minPairs && !last {
			continue
		}
		if err := r.judge(stretches, last); err != nil || r.verdict != open {
			return r, err
		}
	}
}

// stretch runs a stretch of steps, with probes or without, and returns the number of sums that probes have seen in it.
func (m *measurement) stretch(ranks [2]*rank, with bool) (s stretch, seen int, err error) {
	s.with = with
	var w *watch
	if with {
		if w, err = attach(ranks); err != nil {
			return s, 0, err
		}
		defer func() {
			err = errors.Join(err, w.probes.Close())
		}()
	}
	m.settleDown()
	first, err := ranks[0].wait(0)
	if err == nil {
		first, err = ranks[0].wait(first + settling)
	}
	if err != nil {
		return s, 0, err
	}
	sumsBefore, err := w.seen()
	if err != nil {
		return s, 0, err
	}
	before, err := processor(ranks)
	if err != nil {
		return s, 0, err
	}
	calls := [2]uint64{ranks[0].times.calls.Load(), ranks[1].times.calls.Load()}
	end, err := ranks[0].wait(first + m.block)
	if err != nil {
		return s, 0, err
	}
	after, err := processor(ranks)
	if err != nil {
		return s, 0, err
	}
	for i, r := range ranks {
		all, err := r.times.since(calls[i])
		if err != nil {
			return s, 0, err
		}
		if len(all) == 0 {
			return s, 0, errors.New("no call for a bucket was measured")
		}
		s.calls += paired.Quantile(all, 1, 2) * float64(len(all)) / float64(end-first) / float64(len(ranks))
	}
	sums, err := w.seen()
	s.processor = (after - before) / float64(end-first)
	s.seconds = paired.Quantile(ranks[0].seconds(first, end), 1, 4)
	return s, (sums - sumsBefore) * m.block / (end - first), err
}

// settleDown waits until the work that comes after a change is done.
func (m *measurement) settleDown() {
	debug.FreeOSMemory() // of all that it takes to find the library's functions: at once, and not beside the steps that are measured
	time.Sleep(m.settle)
}

// processor returns the processor seconds that both ranks have taken.
func processor(ranks [2]*rank) (seconds float64, err error) {
	for _, r := range ranks {
		var t unix.Timespec
		clock := ^int32(r.cmd.Process.Pid)<<3 | 2 // as clock_getcpuclockid(3) makes it
		if err := unix.ClockGettime(clock, &t); err != nil {
			return 0, fmt.Errorf("the processor time of a rank: %w", err)
		}
		seconds += float64(t.Nano()) / 1e9
	}
	return seconds, nil
}

// settling is the number of steps after a change that are left out.
const settling = 5

// A watch has the probes of both ranks.
type watch struct {
	probes    *probe.Probes
	processes [2]*probe.Process
}

func attach(ranks [2]*rank) (w *watch, err error) {
	w = new(watch)
	if w.probes, err = probe.Load(); err != nil {
		return nil, err
	}
	for i, r := range ranks {
		if w.processes[i], err = w.probes.Follow(r.cmd.Process.Pid); err != nil {
			return nil, errors.Join(err, w.probes.Close())
		}
	}
	return w, nil
}

// seen returns the number of sums that the probes have seen so far; none without probes.
func (w *watch) seen() (n int, err error) {
	if w == nil {
		return 0, nil
	}
	for _, p := range w.processes {
		counts, err := p.Counts()
		if err != nil {
			return 0, err
		}
		n += int(counts.Reduces)
	}
	return n, nil
}
