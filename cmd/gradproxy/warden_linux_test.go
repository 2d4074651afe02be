package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// A keptSite is two sites of which paris redirects by rules that a process of its own keeps.
type keptSite struct {
	*twoSites
	server string // at tokyo: it answers each line with that and its client's address
	warden int    // its process
}

func newKeptSite(t *testing.T, onDeath string) *keptSite {
	t.Helper()
	require.Root(t)
	require.Command(t, "nft")
	s := &keptSite{twoSites: newTwoSites(t)}
	s.server = s.listen(s.tokyo, "10.2.0.1:0").Addr().String()
	s.configure(onDeath, "10.2.0.0/16")
	at := s.listen(s.paris, "10.1.0.1:0").Addr().String()
	s.write("tokyo", "paris", `networks: [10.1.0.0/16], may_dial: ["10.2.0.0/16:1024-65535"]`, `forward: [{listen: "127.0.0.1:9000", target: "`+at+`"}]`)
	s.start(s.tokyo, "run", "-c", s.file("tokyo")).says("msg=running") // its tunnel listens before its forward does
	return s
}

// listen starts a server on a host.
func (s *keptSite) listen(host *netns.Namespace, at string) (l net.Listener) {
	s.t.Helper()
	var err error
	host.Do(func() { l, err = net.Listen("tcp", at) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					fmt.Fprintf(c, "%s from %v\n", in.Text(), c.RemoteAddr().(*net.TCPAddr).IP)
				}
			}()
		}
	}()
	return l
}

// configure writes the configuration of paris with these networks of tokyo's.
func (s *keptSite) configure(onDeath, networks string) {
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [`+networks+`], may_dial: ["10.1.0.0/16:1024-65535"]`, "intercept: {mode: redirect, on_death: "+onDeath+"}")
}

// run starts the proxy of paris.
func (s *keptSite) run() *process {
	s.t.Helper()
	p := s.start(s.paris, "run", "-c", s.file("paris"))
	found := regexp.MustCompile(`pid=([0-9]+)`).FindStringSubmatch(p.says("rights are kept by a process of its own"))
	p.says("msg=running")
	var err error
	if s.warden, err = strconv.Atoi(found[1]); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// dial connects paris to the server.
func (s *keptSite) dial(patience time.Duration) (c net.Conn, err error) {
	s.paris.Do(func() { c, err = net.DialTimeout("tcp", s.server, patience) })
	if err == nil {
		s.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// fromTokyo connects tokyo to a server of paris, by the proxies, and returns the answer to a line: "peer's from" an
// address.
func (s *keptSite) fromTokyo() string {
	var c net.Conn
	var err error
	s.tokyo.Do(func() { c, err = net.DialTimeout("tcp", "127.0.0.1:9000", 10*time.Second) })
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return says(c, "peer's")
}

// says returns the server's answer to a line: "one from 10.2.0.1" by the proxies, "one from 10.0.0.1" directly.
func says(c net.Conn, line string) string {
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintln(c, line); err != nil { // a reset that has come already, which a read would not tell again
		return err.Error()
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(answer)
}

// fate dials and returns the fate of a new connection: the address that the server sees, "refused" or "held".
func (s *keptSite) fate() string {
	c, err := s.dial(700 * time.Millisecond)
	var late net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &late) && late.Timeout():
		return "held"
	case err != nil:
		return err.Error()
	}
	defer c.Close()
	return strings.TrimPrefix(says(c, "new"), "new from ")
}

const (
	byProxies = "10.2.0.1" // the far proxy dials
	directly  = "10.0.0.1"
)

// fates are the fates of new connections without a proxy, by on_death.
var fates = map[string]string{"hold": "held", "refuse": "refused", "direct": directly}

// wantHeld dials, and returns a function that fails the test unless the connection gets through to the proxies in the
// end.
func (s *keptSite) wantHeld() (through func()) {
	done := make(chan string, 1)
	go func() {
		c, err := s.dial(time.Minute)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- says(c, "held")
	}()
	return func() {
		s.t.Helper()
		if got := <-done; got != "held from "+byProxies {
			s.t.Errorf("the connection that waited: %s", got)
		}
	}
}

// capabilitiesOf returns the effective and the permitted ones of all threads of a process, once its last wall is there.
func capabilitiesOf(t *testing.T, pid int) (all []string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || time.Since(began) > time.Minute {
			t.Fatal(err)
		} else if strings.Contains(string(status), "Seccomp:\t2") {
			break
		}
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, _ := os.ReadFile(task)
		for line := range strings.Lines(string(status)) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); name == "CapEff" || name == "CapPrm" {
				all = append(all, strings.TrimLeft(value, "0"))
			}
		}
	}
	return all
}

// In mode redirect the process that parses bytes has no capability. The rules follow a reload and go at the end, and
// connections get through, whose dials need a mark.
func TestRulesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := newKeptSite(t, "hold")
	p := s.run()
	for _, has := range capabilitiesOf(t, p.cmd.Process.Pid) {
		if has != "" {
			t.Errorf("the process that parses bytes has the capabilities %s", has)
		}
	}
	for _, has := range capabilitiesOf(t, s.warden) {
		if has != "1000" {
			t.Errorf("the warden has the capabilities %s, want CAP_NET_ADMIN only", has)
		}
	}
	if got := s.fate(); got != byProxies {
		t.Errorf("a connection: %s", got)
	}
	rules := func() (list string) {
		s.paris.Do(func() {
			out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
			if list = string(out); err != nil {
				t.Errorf("nft: %v: %s", err, out)
			}
		})
		return list
	}
	s.configure("hold", "10.2.0.0/16, 10.7.0.0/16")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.says("configuration reloaded")
	if got := rules(); !strings.Contains(got, "10.7.0.0/16") {
		t.Errorf("after the reload:\n%s", got)
	}
	s.paris.Do(func() {
		if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
	})
	p.says("the rules were gone and are written again", "process=warden")
	if got := s.fate(); got != byProxies {
		t.Errorf("a connection after nft flush ruleset: %s", got)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := rules(); got != "" {
		t.Errorf("rules that are left:\n%s", got)
	}
	if err := syscall.Kill(s.warden, 0); err == nil {
		t.Error("the warden is left")
	}
}

// If the warden is killed the log says so, open connections go on, and new ones soon fare as on_death says, until a
// restart.
func TestWardenIsKilled(t *testing.T) {
	for onDeath, want := range fates {
		t.Run(onDeath, func(t *testing.T) {
			t.Parallel()
			s := newKeptSite(t, onDeath)
			p := s.run()
			c, err := s.dial(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if got := says(c, "before"); got != "before from "+byProxies {
				t.Errorf("before: %s", got)
			}
			if err := syscall.Kill(s.warden, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.says("the process that keeps the rules has ended", "open connections go on", "restart it")
			time.Sleep(intercept.Timeout + time.Second)
			if got := s.fate(); got != want {
				t.Errorf("a new connection: %s, want %s", got, want)
			}
			if got := says(c, "after"); got != "after from "+byProxies {
				t.Errorf("the open connection: %s", got)
			}
			through := func() {}
			if onDeath == "hold" {
				through = s.wantHeld()
			}
			p.cmd.Process.Signal(syscall.SIGKILL)
			awaitDeath(t, p.cmd.Process.Pid)
			s.run()
			if got := s.fate(); got != byProxies {
				t.Errorf("a connection after the restart: %s", got)
			}
			through()
		})
	}
}

// If the process that parses bytes is killed the warden ends with it, new connections fare as on_death says, and the
// next start needs no pause.
func TestProxyOfAWardenIsKilled(t *testing.T) {
	for onDeath, want := range fates {
		t.Run(onDeath, func(t *testing.T) {
			t.Parallel()
			s := newKeptSite(t, onDeath)
			p := s.run()
			if got := s.fate(); got != byProxies {
				t.Errorf("a connection: %s", got)
			}
			warden := s.warden
			if err := syscall.Kill(warden, syscall.SIGSTOP); err != nil { // so that it ends by the kernel's signal only, and not since its sockets are closed
				t.Fatal(err)
			}
			p.cmd.Process.Signal(syscall.SIGKILL)
			awaitDeath(t, p.cmd.Process.Pid)
			if onDeath == "direct" {
				time.Sleep(intercept.Timeout + time.Second) // until then the rules have force, and lead nowhere
			}
			if got := s.fate(); got != want {
				t.Errorf("a new connection: %s, want %s", got, want)
			}
			through := func() {}
			if onDeath == "hold" {
				through = s.wantHeld()
			}
			s.run()
			if got := s.fate(); got != byProxies {
				t.Errorf("a connection after the restart: %s", got)
			}
			through()
			for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // the kernel has killed it, and its last thread may want a processor
				name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", warden))
				if err != nil || !strings.HasPrefix(string(name), "gradproxy-warden") {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatal("the warden of the killed proxy lives")
				}
			}
		})
	}
}

// A warden that is stopped is missed: the job's new connections fare as on_death says, and those that the peer opens
// are reset, since no socket is marked to dial their servers. Once it runs again both get through. The proxy ends
// although it is stopped.
func TestStoppedWarden(t *testing.T) {
	t.Parallel()
	s := newKeptSite(t, "refuse")
	p := s.run()
	if got := s.fromTokyo(); !strings.HasPrefix(got, "peer's from ") {
		t.Errorf("a connection of the peer's: %s", got)
	}
	if err := syscall.Kill(s.warden, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.says("not refreshed", "the process that keeps rights does not answer in time")
	if got := s.fate(); got != "refused" {
		t.Errorf("a connection while the warden is stopped: %s", got)
	}
	for range 2 {
		if got := s.fromTokyo(); !strings.Contains(got, syscall.ECONNRESET.Error()) {
			t.Errorf("a connection of the peer's while the warden is stopped: %s", got)
		}
	}
	if err := syscall.Kill(s.warden, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for own, far := "", ""; own != byProxies || !strings.HasPrefix(far, "peer's from "); time.Sleep(100 * time.Millisecond) {
		if own, far = s.fate(), s.fromTokyo(); ctx.Err() != nil {
			t.Fatalf("once the warden runs, a connection: %s, and one of the peer's: %s", own, far)
		}
	}
	if err := syscall.Kill(s.warden, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code == 0 {
			t.Error("the proxy could not remove its rules, and its exit code is 0")
		}
	case <-time.After(2 * time.Minute):
		t.Error("the proxy waits for a warden that is stopped")
	}
}

// A process that takes over has a warden of its own, which puts the rules in force anew: open connections go on, and
// the old warden ends with its process.
func TestUpgradeWithAWarden(t *testing.T) {
	t.Parallel()
	s := newKeptSite(t, "hold")
	folder := filepath.Join(s.dir, "upgrade")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.file("paris"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "upgrade: {socket: %s}\n", filepath.Join(folder, "socket"))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	before := s.run()
	old := s.warden
	c, err := s.dial(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := says(c, "before"); got != "before from "+byProxies {
		t.Errorf("before: %s", got)
	}
	after := s.run()
	select {
	case <-before.ended:
	case <-time.After(time.Minute):
		t.Fatal("the old process does not end")
	}
	if err := syscall.Kill(old, 0); err == nil {
		t.Error("the old warden is left")
	}
	if got := says(c, "after"); got != "after from "+byProxies {
		t.Errorf("the open connection: %s", got)
	}
	time.Sleep(intercept.Timeout + time.Second) // the old process's refreshes have no force any more
	if got := s.fate(); got != byProxies {
		t.Errorf("a new connection: %s", got)
	}
	for _, has := range capabilitiesOf(t, after.cmd.Process.Pid) {
		if has != "" {
			t.Errorf("the process that has taken over has the capabilities %s", has)
		}
	}
}

// A congestion control that takes CAP_NET_ADMIN is the one of the tunnel's connections at both sites, and the processes
// that parse bytes do without that capability.
func TestWardenChoosesCongestion(t *testing.T) {
	t.Parallel()
	require.Root(t)
	require.Command(t, "ss")
	congestion := require.RestrictedCongestion(t)
	s := newTwoSites(t)
	more := "tunnel: {carrier: tls, congestion: " + congestion + "}"
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [10.2.0.0/16]`, more)
	s.write("tokyo", "paris", `networks: [10.1.0.0/16]`, more)
	tokyo := s.start(s.tokyo, "run", "-c", s.file("tokyo"))
	paris := s.start(s.paris, "run", "-c", s.file("paris"))
	for _, p := range []*process{tokyo, paris} {
		p.says("session begins")
		p.says("rights are kept by a process of its own")
		for _, has := range capabilitiesOf(t, p.cmd.Process.Pid) {
			if has != "" {
				t.Errorf("the process that parses bytes has the capabilities %s", has)
			}
		}
	}
	for _, host := range []*netns.Namespace{s.paris, s.tokyo} {
		host.Do(func() {
			for began := time.Now(); ; time.Sleep(50 * time.Millisecond) { // a carrier may just have been accepted
				out, err := exec.Command("ss", "-Htin", "state", "established").CombinedOutput()
				carriers := strings.Count(string(out), ":7443")
				if err == nil && carriers > 0 && strings.Count(string(out), " "+congestion+" ") == carriers {
					break
				}
				if err != nil || time.Since(began) > time.Minute {
					t.Errorf("carriers that should have %s (%v):\n%s", congestion, err, out)
					break
				}
			}
		})
	}
}
