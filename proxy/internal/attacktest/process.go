// Package attacktest helps benchmarks of an honest peer beside an attacker. The attacker is a process of its own, so
// that its processor time is known: a real attacker's is spent on other hosts. A control is a process that burns as
// much and sends nothing.
package attacktest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// An Attack goes on until ctx ends, and returns how often it was tried: its number of hostile units. It calls ready
// once, when it begins. It may not use a testing.TB, since it runs in a process of its own.
type Attack func(ctx context.Context, ready func(), args ...string) (tries int, err error)

// named is the variable of the environment that has the test binary be an attacker.
const named = "GRADPROXY_TEST_ATTACKER"

// Main runs an attack and ends the process, if this process is an attacker. It must be called first in TestMain.
func Main(attacks map[string]Attack) {
	name := os.Getenv(named)
	if name == "" {
		return
	}
	attack := attacks[name]
	if name == burning {
		attack = burn
	}
	if attack == nil {
		os.Stderr.WriteString("no attack " + name + "\n")
		os.Exit(2)
	}
	ctx, stop := context.WithCancel(context.Background())
	begin, end := make(chan moment, 1), make(chan moment, 1)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end <- now() // an attack may take a while to come to its end, in which it tries nothing
		stop()
	}()
	tries, err := attack(ctx, func() {
		begin <- now()
		os.Stdout.WriteString("ready\n")
	}, os.Args[1:]...)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	began, ended := <-begin, <-end
	r := Report{Tries: tries, Lasted: ended.at.Sub(began.at), Spent: ended.spent - began.spent}
	json.NewEncoder(os.Stdout).Encode(r) // a parent that has gone learns nothing
	os.Exit(0)
}

// A moment is a time, and the processor time that this process has used until then.
type moment struct {
	at    time.Time
	spent time.Duration
}

func now() moment { return moment{time.Now(), Spent()} }

// A Report counts the work of an attacker from the moment at which it was ready until it was to stop.
type Report struct {
	Tries  int
	Lasted time.Duration
	Spent  time.Duration // of processor time, the kernel's for it included
}

// Cores returns the mean number of cores that the attacker used.
func (r Report) Cores() float64 { return r.Spent.Seconds() / r.Lasted.Seconds() }

// A Process is an attacker.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// Start starts an attack, and returns when it has begun. The caller must Stop it.
func Start(b testing.TB, name string, args ...string) *Process {
	b.Helper()
	p := &Process{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), named+"="+name)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.stdin, p.out = stdin, bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if line, err := p.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		p.cmd.Wait()
		b.Fatalf("attack %s said %q, %v", name, line, err)
	}
	return p
}

// Stop ends the attack.
func (p *Process) Stop(b testing.TB) (r Report) {
	b.Helper()
	p.stdin.Close()
	decoded := json.NewDecoder(p.out).Decode(&r)
	if err := p.cmd.Wait(); err != nil || decoded != nil {
		b.Fatalf("the attacker ended with %v, %v", err, decoded)
	}
	return r
}
