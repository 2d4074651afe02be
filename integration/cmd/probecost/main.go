//go:build linux

// Command probecost measures the effect of probes on the step time of a real job: DistributedDataParallel of PyTorch with two ranks on this machine,
// without proxies or an emulated link, which would hide it. While the job runs, the probes of package bpf/probe are attached and detached in turns, every
// so many steps, so that whatever else the machine does meets both alike. It prints the changes of the step time and of the processors' time, which a
// busy machine disturbs less, with their confidence intervals. Run it from the root of the checkout, as root, while the machine does nothing else:
//
//	go run ./integration/cmd/probecost
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement says what is run.
type measurement struct {
	environment string
	hidden      string // widths of the model's hidden layers
	bucketMB    float64
	blocks      int // stretches of steps, half of them with probes
	block       int // steps of each
}

func main() {
	m := measurement{}
	flag.StringVar(&m.environment, "environment", "torch215", "PyTorch: torch215 or torch113")
	flag.StringVar(&m.hidden, "hidden", "512,256", "widths of the hidden layers")
	flag.Float64Var(&m.bucketMB, "bucket-mb", 0.25, "size of DistributedDataParallel's buckets")
	flag.IntVar(&m.blocks, "blocks", 120, "stretches of steps, half of them with probes; a multiple of 4")
	flag.IntVar(&m.block, "block", 150, "steps of a stretch")
	flag.Parse()
	program.Main("probecost", m.run)
}

func (m *measurement) run(ctx context.Context) error {
	if m.blocks < 16 || m.blocks%4 != 0 || m.block < 10 {
		return fmt.Errorf("--blocks %d --block %d: want a multiple of 4 and at least 16 blocks, of 10 steps or more", m.blocks, m.block)
	}
	return program.With("integration/testdata/torch_job.py", func(path, _ string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ranks, err := m.start(ctx, path)
		if err != nil {
			return err
		}
		stretches, sums, err := m.follow(ranks)
		if err != nil {
			return err
		}
		seconds, err := ends(ranks)
		if err != nil {
			return err
		}
		time, err := compare(stretches, func(s *stretch) float64 { return s.seconds(seconds) })
		if err != nil {
			return err
		}
		processor, err := compare(stretches, func(s *stretch) float64 { return s.processor })
		if err != nil {
			return err
		}
		fmt.Printf("%.1f sums of a step and rank seen\na step takes %v\nprocessors work on it, for both ranks, %v\n", sums, time, processor)
		return nil
	})
}

// A rank is a process of the job.
type rank struct {
	cmd *exec.Cmd
	out io.Reader

	mu    sync.Mutex
	moved *sync.Cond // step has changed
	step  int        // that has ended last; -1: none
	ended bool       // there will be no more steps
}

// start starts both ranks.
func (m *measurement) start(ctx context.Context, path string) (ranks [2]*rank, err error) {
	python, complete := testbed.Python(m.environment)
	if !complete {
		return ranks, fmt.Errorf("%s is missing: run integration/env/install.sh %[1]s", m.environment)
	}
	port := strconv.Itoa(20000 + rand.IntN(10000))
	for i := range ranks {
		cmd := exec.CommandContext(ctx, python, path, "--steps", strconv.Itoa(m.blocks*m.block), "--hidden", m.hidden, "--bucket-mb", fmt.Sprint(m.bucketMB), "--batch", "16")
		cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(i), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1",
			"PYTHONDONTWRITEBYTECODE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if ranks[i], err = begin(cmd); err != nil {
			return ranks, err
		}
	}
	return ranks, nil
}

// begin starts a rank and reads which steps it has made.
func begin(cmd *exec.Cmd) (*rank, error) {
	r := &rank{cmd: cmd, step: -1}
	r.moved = sync.NewCond(&r.mu)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		r.out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "step "); ok {
				if n, err := strconv.Atoi(text); err == nil {
					r.set(n, false)
				}
			}
		}
		r.set(r.step, true)
	}()
	return r, nil
}

func (r *rank) set(step int, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.ended = step, ended
	r.moved.Broadcast()
}

// wait waits until a step has ended, and returns the one that has ended last.
func (r *rank) wait(step int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.step < step && !r.ended {
		r.moved.Wait()
	}
	if r.step < step {
		return 0, fmt.Errorf("the job has ended after step %d", r.step)
	}
	return r.step, nil
}

// end waits for the rank's end, and returns the seconds that each step has taken.
func (r *rank) end() ([]float64, error) {
	var report testbed.Report
	if err := json.NewDecoder(r.out).Decode(&report); err != nil {
		return nil, fmt.Errorf("the job has failed: %w", errors.Join(err, r.cmd.Wait()))
	}
	return report.EachStepSeconds, r.cmd.Wait()
}

// ends waits for the end of both ranks, and returns the seconds that each step of the first has taken. It reads both reports at
// the same time, because the ranks wait for each other after their reports, which are longer than a pipe holds.
func ends(ranks [2]*rank) (seconds []float64, err error) {
	second := make(chan error, 1)
	go func() {
		_, err := ranks[1].end()
		second <- err
	}()
	seconds, err = ranks[0].end()
	return seconds, errors.Join(err, <-second)
}

// follow attaches and detaches the probes in turns until the job has made its steps, and returns the stretches between and the number of sums that were
// seen of each rank and step. The steps during which probes come or go belong to no stretch.
func (m *measurement) follow(ranks [2]*rank) (stretches []stretch, sums float64, err error) {
	seen, steps := 0, 0
	for i := range m.blocks {
		if _, err := ranks[0].wait(i * m.block); err != nil {
			return nil, 0, err
		}
		s := stretch{with: i%4 == 1 || i%4 == 2, end: (i+1)*m.block - 1}
		var w *watch
		if s.with {
			if w, err = attach(ranks); err != nil {
				return nil, 0, err
			}
		}
		begin, err := ranks[0].wait(0)
		if err != nil {
			return nil, 0, err
		}
		before, err := processor(ranks)
		if err != nil {
			return nil, 0, err
		}
		s.first = begin + settling
		end, err := ranks[0].wait(s.end)
		if err != nil {
			return nil, 0, err
		}
		after, err := processor(ranks)
		if err != nil {
			return nil, 0, err
		}
		s.processor = (after - before) / float64(end-begin)
		if s.with {
			n, err := w.close()
			if err != nil {
				return nil, 0, err
			}
			seen, steps = seen+n, steps+end-begin
		}
		stretches = append(stretches, s)
	}
	return stretches, float64(seen) / float64(2*steps), nil
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

// close detaches the probes and returns the number of sums that they have seen.
func (w *watch) close() (n int, err error) {
	for _, p := range w.processes {
		counts, err := p.Counts()
		if err != nil {
			return 0, errors.Join(err, w.probes.Close())
		}
		n += int(counts.Reduces)
	}
	return n, w.probes.Close()
}
