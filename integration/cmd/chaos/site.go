//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A site runs the program, one process at a time.
type site struct {
	s            *stage
	name, config string
	binary       string
	dying        sync.Mutex // held from a death to the next start, and while signals are sent
	process
}

// A process is a running process of the program.
type process struct {
	cmd   *exec.Cmd
	log   *bytes.Buffer
	clock *wallClock // nil: it cannot jump
	ended chan error // has the result of the process once it has ended
}

// configure writes the site's configuration file. tunnel is the address at which tokyo's tunnel listens; paris has no
// use for it.
func (x *site) configure(tunnel string) error {
	s := x.s
	text := fmt.Sprintf("site: %[1]s\nadmin: \"unix:%[2]s/%[1]s.sock\"\ndrain: 1s\nstate: {dir: %[2]s/%[1]s-state}\n"+
		"upgrade: {socket: %[2]s/%[1]s.upgrade, within: 15s}\n", x.name, s.dir) + s.tensors.keys()
	if s.crowded {
		text += "references: 1MiB\n"
	}
	if x.name == "paris" {
		text += fmt.Sprintf("tunnel: {listen: off, resume: 30s, carrier: "+s.lab.carrier+"}\npeers: [{name: tokyo, dial: %q, id: \"spiffe://chaos/tokyo\", networks: [127.0.2.0/24]}]\n"+
			"forward: [{listen: %q, target: %q}%s]\n", s.relay.address(), s.job.entry, s.job.server.Addr(), s.tensors.forwards())
	} else {
		text += fmt.Sprintf("tunnel: {listen: %q, resume: 30s, carrier: "+s.lab.carrier+"}\npeers: [{name: paris, id: \"spiffe://chaos/paris\", networks: [127.0.1.0/24], "+
			"may_dial: [\"127.0.2.0/24:1024-65535\"]}]\n", tunnel)
	}
	return os.WriteFile(x.config, []byte(text), 0o600)
}

func (x *site) start() error {
	p, err := x.launch(x.binary)
	if err != nil {
		return err
	}
	x.process = p
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) { // until it listens, signals would end it
		if c, err := net.Dial("unix", filepath.Join(x.s.dir, x.name+".sock")); err == nil {
			return c.Close()
		}
		select {
		case err := <-x.ended:
			x.ended <- err
			return fmt.Errorf("%s ended at its start: %w: %s", x.name, err, x.last())
		default:
		}
	}
	return fmt.Errorf("%s has not started in a minute", x.name)
}

// launch begins a process of a binary.
func (x *site) launch(binary string) (p process, err error) {
	p = process{cmd: exec.Command(binary, "run", "-c", x.config), log: new(bytes.Buffer), ended: make(chan error, 1)}
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if x.s.lab.clocks {
		p.clock, err = startWithClock(p.cmd)
	} else {
		err = p.cmd.Start()
	}
	if err != nil {
		return p, err
	}
	go func() {
		err := p.cmd.Wait()
		if p.clock != nil {
			p.clock.close()
		}
		p.ended <- err
	}()
	return p, nil
}

// handOver starts a process of binary that takes the place of the running one. No app must notice. If connections do
// not come to rest while other faults go on, the new process ends by itself, and the old one must carry on.
func (x *site) handOver(binary string) {
	x.dying.Lock()
	defer x.dying.Unlock()
	before := x.metrics()
	p, err := x.launch(binary)
	if err != nil {
		x.s.wrongly("%v", err)
		return
	}
	select {
	case err := <-x.ended:
		if err != nil {
			x.s.wrongly("%s ended with %v while another process was to take over: %s", x.name, err, x.last())
		}
		x.binary, x.process = binary, p
		x.count(before)
		x.s.mu.Lock()
		x.s.moved++
		x.s.mu.Unlock()
	case err := <-p.ended:
		if p.cmd.ProcessState.ExitCode() != 1 {
			x.s.wrongly("the process that was to take %s over ended with %v", x.name, err)
		}
	case <-time.After(time.Minute):
		p.cmd.Process.Kill()
		<-p.ended
		x.s.wrongly("%s was not taken over in a minute, and no process says why", x.name)
	}
}

// signal sends a signal to the process that runs now.
func (x *site) signal(sig os.Signal) {
	x.dying.Lock()
	defer x.dying.Unlock()
	x.cmd.Process.Signal(sig)
}

// stop ends the process in order. It reports a process that had ended before, or does not end.
func (x *site) stop() {
	x.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-x.ended:
		if err != nil {
			x.s.wrongly("%s ended with %v: %s", x.name, err, x.last())
		}
	case <-time.After(time.Minute):
		x.cmd.Process.Kill()
		<-x.ended
		x.s.wrongly("%s does not end: %s", x.name, x.last())
	}
}

// last returns the last line of the log. The process must have ended.
func (x *site) last() string {
	lines := strings.Split(strings.TrimSpace(x.log.String()), "\n")
	return lines[len(lines)-1]
}

// replace ends the process by sig and starts another one after a pause.
func (x *site) replace(sig syscall.Signal, pause time.Duration) {
	x.dying.Lock()
	defer x.dying.Unlock()
	defer x.s.disturb()()
	x.count(x.metrics())
	if sig == syscall.SIGKILL {
		x.cmd.Process.Kill()
		<-x.ended
	} else {
		x.stop()
	}
	time.Sleep(pause)
	if err := x.start(); err != nil {
		x.s.wrongly("%v", err)
	}
}

// jump sets the difference of the running process's wall clock to the host's to d.
func (x *site) jump(d time.Duration) {
	x.dying.Lock()
	defer x.dying.Unlock()
	if err := x.clock.jump(d); err != nil {
		x.s.wrongly("the clock of %s: %v", x.name, err)
	}
}
