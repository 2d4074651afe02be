//go:build amd64 || arm64

package apart

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Part says which part of the program a process is.
type Part struct {
	Name   string   // the process's first argument, by which the program knows the part
	Args   []string // more arguments
	Pairs  int      // socket pairs
	Memory int      // in bytes, to which its collector keeps as far as it can
	Says   string   // begins the log's lines about words of it that are no log, as of the runtime
}

// A Process is a process that Start has started.
type Process struct {
	Conns []*net.UnixConn // this process's ends of the socket pairs

	pid    int
	kill   func()
	ending <-chan error  // gets the error of its end
	ended  chan struct{} // closed then
}

// Start starts a process with the rights that this one has now, in the network namespace of the calling thread. The
// caller must call Watch once.
func Start(p Part, log *slog.Logger) (*Process, error) {
	process := &Process{ended: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for range p.Pairs {
		ours, far, err := pair()
		if err != nil {
			process.Close()
			return nil, err
		}
		process.Conns, theirs = append(process.Conns, ours), append(theirs, far)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{p.Name}, p.Args...), Dir: "/", ExtraFiles: theirs, Stderr: &logged{log: log, name: p.Name, says: p.Says},
		// Nothing of the environment is its own: it says nothing to the service manager, and has no setting of this
		// process.
		Env:         []string{"GOMEMLIMIT=" + strconv.Itoa(p.Memory)},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	}
	ended, err := fork(cmd)
	if err != nil {
		process.Close()
		return nil, err
	}
	process.pid = cmd.Process.Pid
	process.kill = func() { _ = cmd.Process.Kill() } // it may have ended meanwhile
	process.ending = ended
	return process, nil
}

// pair makes a socket pair, whose second end is to be inherited.
func pair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "theirs")
	if ours, err = ConnOf(os.NewFile(uintptr(fds[0]), "ours")); err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.pid }

// Close closes the sockets. The process then ends by itself, unless it is stopped.
func (p *Process) Close() {
	for _, c := range p.Conns {
		c.Close()
	}
}

// Kill ends the process, also one that is stopped and would not notice that its sockets are closed.
func (p *Process) Kill() { p.kill() }

// Watch returns at once. When the process has ended it calls over once, with the reason.
func (p *Process) Watch(over func(error)) {
	go func() {
		defer close(p.ended)
		err := <-p.ending
		if err == nil {
			err = errors.New("exit status 0")
		}
		over(err)
	}()
}

// endWithin is how long a process may take for its end once its sockets are closed.
const endWithin = 2 * time.Second

// Await waits for the end of a process whose sockets are closed. It kills a process that is stopped.
func (p *Process) Await() {
	select {
	case <-p.ended:
	case <-time.After(endWithin):
		p.kill()
		<-p.ended
	}
}

// fork starts a process and returns a channel that gets the error of its end. The thread that starts it stays until
// then: Linux ties the signal for a parent's death (prctl(2), PR_SET_PDEATHSIG) to the thread that forked, and Go ends
// threads now and then.
func fork(cmd *exec.Cmd) (ended <-chan error, err error) {
	here, err := networkOf()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	started, end := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good, since it may be in another network namespace than other threads: it ends with this goroutine
		err := enter(here)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
	}()
	return end, <-started
}

// networkOf returns the network namespace of the calling thread.
func networkOf() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// enter has the calling thread enter a network namespace, unless it is in that.
func enter(other *os.File) error {
	here, err := networkOf()
	if err != nil {
		return err
	}
	defer here.Close()
	a, errA := here.Stat()
	b, errB := other.Stat()
	if err := errors.Join(errA, errB); err != nil || os.SameFile(a, b) {
		return err
	}
	return unix.Setns(int(other.Fd()), unix.CLONE_NEWNET)
}
