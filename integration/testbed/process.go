//go:build linux

package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A process is a child that dies with this one, whatever ends it.
type process struct {
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed once it has ended

	killed atomic.Bool // by kill
	err    error       // of cmd.Wait, valid then
	end    time.Time   // when, valid then
}

// startProcess starts cmd. Its stderr goes to see line by line, if given, and the last of it is kept for errors.
func startProcess(cmd *exec.Cmd, see func(line string)) (*process, error) {
	p := &process{cmd: cmd, log: &tail{see: see}, done: make(chan struct{})}
	cmd.Stderr = p.log
	cmd.WaitDelay = 5 * time.Second
	if err := forker()(cmd); err != nil {
		return nil, fmt.Errorf("testbed: start %s: %w", strings.Join(cmd.Args, " "), err)
	}
	go func() {
		p.err = cmd.Wait()
		p.end = time.Now()
		close(p.done)
	}()
	return p, nil
}

// forker returns the function that starts processes from one thread, which lives as long as this process: Linux ties
// the signal for a parent's death (prctl(2), PR_SET_PDEATHSIG) to the thread that forked, and Go ends threads now and
// then.
var forker = sync.OnceValue(func() func(*exec.Cmd) error {
	commands, results := make(chan *exec.Cmd), make(chan error)
	go func() {
		runtime.LockOSThread()
		for cmd := range commands {
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
			results <- cmd.Start()
		}
	}()
	var mu sync.Mutex
	return func(cmd *exec.Cmd) error {
		mu.Lock()
		defer mu.Unlock()
		commands <- cmd
		return <-results
	}
})

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() {
	p.killed.Store(true)
	p.cmd.Process.Kill()
	<-p.done
}

// terminate asks the process to end, and kills it if it has not within the grace time.
func (p *process) terminate(grace time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(grace):
		p.kill()
		return fmt.Errorf("testbed: process %d did not end within %v of SIGTERM:\n%s", p.cmd.Process.Pid, grace, p.log)
	}
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// cpu returns the processor time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	if p.ended() {
		return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(), nil
	}
	return CPUOf(p.cmd.Process.Pid)
}

// CPUOf returns the processor time that a process has used so far.
func CPUOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("testbed: processor time: %w", err)
	}
	// Fields 14 and 15, utime and stime in ticks of 10 ms (proc(5)); the second, a name, may hold blanks.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("testbed: processor time: /proc/PID/stat is cut short")
	}
	user, err1 := strconv.Atoi(string(fields[11]))
	system, err2 := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// resident returns the bytes of memory that the process has in use, as the kernel counts them.
func (p *process) resident() (int64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("testbed: resident memory: %w", err)
	}
	fields := strings.Fields(string(statm)) // in pages, proc(5): size, resident
	if len(fields) < 2 {
		return 0, errors.New("testbed: resident memory: /proc/PID/statm is cut short")
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// A tail keeps the last lines that are written to it.
type tail struct {
	see func(line string) // told of each line; nil: nobody

	mu      sync.Mutex
	lines   []string
	partial []byte
}

const tailLines = 60

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, b...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found {
			return len(b), nil
		}
		t.lines = append(t.lines, string(line))
		if len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
		t.partial = rest
		if t.see != nil {
			t.see(string(line))
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(append(t.lines[:len(t.lines):len(t.lines)], string(t.partial)), "\n")
}
