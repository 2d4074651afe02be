package job

import (
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Job is a command that runs.
type Job struct {
	pid int // and its process group
	tty *terminal

	mu    sync.Mutex
	ended bool // the pid may belong to another
}

// Start starts args in the cgroup of that folder, as a user unless the name is "". The user has the groups of the
// system's list and the variables HOME, USER and LOGNAME of their own, and the other variables of this process.
func Start(args []string, cgroup, name string) (*Job, error) {
	credential, env, err := userOf(name)
	if err != nil {
		return nil, err
	}
	path, err := find(args[0])
	if err != nil {
		return nil, err
	}
	group, err := os.Open(cgroup)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	// The capabilities that a service manager has given this process are its own: with CAP_NET_ADMIN the command would
	// pass by it.
	runtime.LockOSThread() // which forks
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("job: clearing the ambient capabilities: %w", err)
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true, UseCgroupFD: true, CgroupFD: int(group.Fd()), Credential: credential},
	})
	if err != nil {
		return nil, &StartError{codeNotRunnable, fmt.Errorf("%s cannot be run: %w", path, err)}
	}
	signal.Ignore(unix.SIGTTOU) // the terminal may be given from and to the background; the command was started before
	return &Job{pid: pid, tty: openTerminal()}, nil
}

// userOf returns how a process becomes a user, by name or number, and its environment; nil and this process's for "".
func userOf(name string) (*syscall.Credential, []string, error) {
	env := os.Environ()
	if name == "" {
		return nil, env, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, nil, fmt.Errorf("--user %s: there is no such user: name one of /etc/passwd", name)
		}
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, nil, fmt.Errorf("--user %s: its groups: %w", name, err)
	}
	var numbers []uint32
	for _, id := range append([]string{u.Uid, u.Gid}, ids...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("--user %s: %w", name, err)
		}
		numbers = append(numbers, uint32(n))
	}
	env = append(env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
	return &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}, dedupe(env), nil
}

// dedupe keeps the last value of each variable: programs differ in which they take.
func dedupe(env []string) []string {
	last := map[string]int{}
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		last[name] = i
	}
	var kept []string
	for i, v := range env {
		if name, _, _ := strings.Cut(v, "="); last[name] == i {
			kept = append(kept, v)
		}
	}
	return kept
}

// Signals lists the signals that Deliver sends on, without the ones that this process was told to ignore when it
// started, as by nohup: the command then ignores them as well.
func Signals() []os.Signal {
	var all []os.Signal
	for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT} {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// Deliver sends a signal on to the command: to its whole group a signal that a terminal would send to a group, if this
// process was sent it so, and else to the process alone.
func (j *Job) Deliver(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	to := j.pid
	switch s {
	case unix.SIGCONT:
		j.tty.resume(j.pid)
		to = -j.pid
	case unix.SIGTSTP:
		to = -j.pid
	case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGWINCH:
		if j.tty.ours() {
			to = -j.pid
		}
	}
	_ = unix.Kill(to, s) // it may have ended, or have become another user's
}

// Wait waits for the command's end and returns its exit code; 128 and the number of the signal that ended it.
func (j *Job) Wait() (int, error) {
	defer j.tty.close()
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(j.pid, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("wait4", err)
		case status.Stopped():
			j.stopped(status.StopSignal())
		default:
			j.mu.Lock()
			defer j.mu.Unlock()
			j.ended = true
			j.tty.reclaim(j.pid)
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// stopped follows the command into its stop, or gives it the terminal that it stopped for.
func (j *Job) stopped(s syscall.Signal) {
	j.mu.Lock()
	who := os.Getpid()
	if j.tty.wasGiven() {
		who = 0 // the terminal told the command's group alone: the rest of the shell's job stops, too
	}
	follow := s == unix.SIGTSTP // any other stop, as by SIGSTOP, concerns only the command and its sender
	if s == unix.SIGTTIN || s == unix.SIGTTOU {
		if j.tty.give(j.pid) {
			_ = unix.Kill(-j.pid, unix.SIGCONT)
		} else {
			follow = j.tty != nil
		}
	}
	j.mu.Unlock() // the process that resumes this one is heard at once
	if follow {
		_ = unix.Kill(who, unix.SIGSTOP)
	}
}
