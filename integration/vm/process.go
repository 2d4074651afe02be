package vm

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// boot runs a guest whose job lies in dir until it ends or ctx does. The guest's console is written to console.
func (g Guest) boot(ctx context.Context, m machine, dir string, console io.Writer) error {
	line, err := m.command(g, dir)
	if err != nil {
		return err
	}
	return runGuest(process(ctx, line, console), g.Exact)
}

// process returns the process of a virtual machine, which ends with ctx.
func process(ctx context.Context, line []string, console io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = console, console
	// The processes of a user-mode kernel's guest are the host's too. They are of one group, and die together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// runGuest runs a guest. An exact one is a real-time process (sched(7)), so that its clock does not wait for the
// machine's other work and the guest's timings do not measure the machine's load. Where that is forbidden the guest is
// less exact.
func runGuest(cmd *exec.Cmd, exact bool) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which hands its scheduling on to the guest, ends here
		if exact {
			realTime()
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return err
	}
	release, err := guard(cmd.Process.Pid)
	if err != nil {
		err = errors.Join(err, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		return errors.Join(err, cmd.Wait())
	}
	defer release()
	return cmd.Wait()
}

// guard adds a process to the group that kills all of it when this process ends, however it does, and on release. The
// kernel alone (prctl(2), PR_SET_PDEATHSIG) would end only the group's first process: the threads that a guest's
// processes run in stay.
func guard(group int) (release func(), err error) {
	watcher := exec.Command("sh", "-c", "read _; kill -KILL 0")
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	alive, err := watcher.StdinPipe() // nobody writes to it: it is closed when its last owner has ended
	if err != nil {
		return nil, err
	}
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	return func() {
		alive.Close()
		_ = watcher.Wait() // it kills itself
	}, nil
}
