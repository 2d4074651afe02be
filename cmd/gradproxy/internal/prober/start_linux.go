//go:build amd64 || arm64

package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long the prober may take: quick questions are looked up in maps, others search /proc, and attach programs to a library.
const (
	quickWithin = 2 * time.Second
	slowWithin  = time.Minute
	endWithin   = 2 * time.Second

	// quickRest is how long nobody asks a quick question after a late answer: parsers wait for the answers, and may so lose a part of 11 of their time at most.
	quickRest = 10 * quickWithin

	// grace is the time after a rest in which a line's next question comes and has its answer, if processes are seen: they are counted each second.
	grace = quickWithin + time.Second
)

// The price of late answers, in the words of the log.
const (
	quickCost = "values whose calls are not known travel exactly, in jobs with sums: gradients as well"
	slowCost  = "nothing is proved for connections whose process is not found yet, and their sums travel exactly, except in jobs with sums: gradients"
)

// Start starts a prober with the rights that this process has now. lost is called once if the prober ends before Close, with the reason.
func Start(log *slog.Logger, lost func(error)) (*Client, error) {
	var ours [descriptors]*line
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for i, l := range []*line{{within: quickWithin, rest: quickRest, grace: grace, cost: quickCost}, {within: slowWithin, grace: grace, cost: slowCost}} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			closeAll(ours[:i])
			return nil, fmt.Errorf("prober: socket pair: %w", err)
		}
		theirs = append(theirs, os.NewFile(uintptr(pair[1]), "prober"))
		conn, err := connOf(os.NewFile(uintptr(pair[0]), "prober"))
		if err != nil {
			closeAll(ours[:i])
			return nil, fmt.Errorf("prober: %w", err)
		}
		l.conn, l.log = conn, log
		ours[i] = l
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{programName}, Dir: "/", ExtraFiles: theirs, Stderr: &logged{log: log},
		// Nothing of the environment is its own: it says nothing to the service manager, and has no setting of this process.
		Env:         []string{"GOMEMLIMIT=" + strconv.Itoa(Memory)},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	}
	ended, err := fork(cmd)
	if err != nil {
		closeAll(ours[:])
		return nil, fmt.Errorf("prober: %w", err)
	}
	c := &Client{quick: ours[0], slow: ours[1], pid: cmd.Process.Pid, processes: map[uint32]*Process{}}
	done := make(chan struct{})
	c.kill = func() { _ = cmd.Process.Kill() } // it may have ended meanwhile
	c.died = func() {
		select {
		case <-done:
		case <-time.After(endWithin):
			c.kill()
			<-done
		}
	}
	go func() {
		defer close(done)
		c.await(ended, lost)
	}()
	return c, nil
}

// await waits for the end of the process that probes, and calls lost if that comes before Close.
func (c *Client) await(ended <-chan error, lost func(error)) {
	err := <-ended
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	lost(c.giveUp(fmt.Errorf("the process that probes has ended: %w", err)))
}

func closeAll(lines []*line) {
	for _, l := range lines {
		l.close()
	}
}

// fork starts a process and returns a channel that gets the error of its end. The thread that starts it stays until then: Linux ties the signal for a
// parent's death (prctl(2), PR_SET_PDEATHSIG) to the thread that forked, and Go ends threads now and then.
func fork(cmd *exec.Cmd) (ended <-chan error, err error) {
	started, end := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
		runtime.UnlockOSThread()
	}()
	return end, <-started
}

// A logged writes the prober's log into the proxy's: JSON objects with level, msg and more, and other lines, as of the runtime, as errors.
type logged struct {
	log  *slog.Logger
	rest string // of a line
}

// maxLine bounds the bytes of a line that are kept.
const maxLine = 4096

func (l *logged) Write(b []byte) (int, error) {
	l.rest += string(b)
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole && len(l.rest) <= maxLine {
			return len(b), nil
		}
		l.rest = rest
		l.line(line)
	}
}

func (l *logged) line(text string) {
	var level slog.Level
	fields := map[string]any{}
	err := json.Unmarshal([]byte(text), &fields)
	message, _ := fields[slog.MessageKey].(string)
	if word, ok := fields[slog.LevelKey].(string); err != nil || !ok || level.UnmarshalText([]byte(word)) != nil {
		l.log.Error("the process that probes says", "line", text)
		return
	}
	for _, key := range []string{slog.TimeKey, slog.LevelKey, slog.MessageKey} {
		delete(fields, key)
	}
	attrs := []any{"process", "prober"}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, key, fields[key])
	}
	l.log.Log(context.Background(), level, message, attrs...)
}
