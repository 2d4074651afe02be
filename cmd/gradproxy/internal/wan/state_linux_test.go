package wan

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// planned returns a plan of two sites, whose namespaces do not exist.
func planned(t *testing.T, dir string) (p *Plan, path string) {
	t.Helper()
	topology, problems := parse("test.yaml", []byte("name: state\nsites: [{name: a}, {name: b}]\nlinks: [{from: a, to: b}]\n"), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	topology.Name = "state" + strconv.Itoa(os.Getpid())
	return NewPlan(topology, User, "a test"), filepath.Join(dir, topology.Name)
}

func held(t *testing.T, dir string, p *Plan) *State {
	t.Helper()
	s, err := Hold(t.Context(), dir, p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func missing(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want it to be gone", path, err)
		}
	}
}

// A process that asks whether a network is up is never taken for the network.
func TestAskingDoesNotHold(t *testing.T) {
	dir := t.TempDir()
	p, path := planned(t, dir)
	asker := &State{Plan: p, dir: dir}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				asker.Alive()
			}
		}
	}()
	for range 300 {
		s := held(t, dir, p)
		if !s.Alive() {
			t.Error("a network that is held is not alive")
		}
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	missing(t, path+".json", path+".lock", path+".new")
}

// A network is held once; whoever wants it while another cleans up waits.
func TestHoldWaitsForWhoCleans(t *testing.T) {
	dir := t.TempDir()
	p, path := planned(t, dir)
	cleaner, err := lock(t.Context(), path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Hold(ended, dir, p); !errors.Is(err, errBusy) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want to have waited", err)
	}
	if (&State{Plan: p, dir: dir}).Alive() {
		t.Error("who cleans is taken for the network's process")
	}
	got := make(chan *State)
	go func() {
		s, err := Hold(t.Context(), dir, p)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	if err := errors.Join(remove(path+".lock"), cleaner.Close()); err != nil { // as Down ends
		t.Fatal(err)
	}
	if s := <-got; s != nil {
		defer s.Release()
	}
	if _, err := Hold(t.Context(), dir, p); err == nil {
		t.Error("held twice")
	}
}

// sleeper starts a process that must not be ended, and ends it with the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if s := c.ProcessState.Sys().(syscall.WaitStatus).Signal(); s != syscall.SIGKILL {
			t.Errorf("somebody's process was ended: %v", s)
		}
	})
	return c
}

// A dead process's note may name a process that is now anybody's: it is not ended, whoever is busy with the network.
func TestDownSparesOthers(t *testing.T) {
	dir := t.TempDir()
	p, path := planned(t, dir)
	other := sleeper(t)
	text, err := json.Marshal(State{Plan: p, PID: other.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	note := func() *State {
		t.Helper()
		number := strconv.Itoa(other.Process.Pid)
		if err := errors.Join(os.WriteFile(path+".json", text, 0o644), os.WriteFile(path+".lock", []byte(number), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Find(dir, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	// Nobody is.
	if last, err := note().Down(t.Context()); err != nil || last != nil {
		t.Errorf("%v, %v", last, err)
	}
	missing(t, path+".json", path+".lock")

	// A process that begins is: it has the lock, and the old note is still there.
	s := note()
	l, err := lock(t.Context(), path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Down(ended); !errors.Is(err, errBusy) {
		t.Errorf("%v, want to have waited", err)
	}
	if _, err := os.Stat(path + ".json"); err != nil {
		t.Errorf("cleaned without the lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Down ends the process that holds the network, whatever the note says. If another lays out a new one of the name at
// once, that one is left alone.
func TestDownSparesTheNext(t *testing.T) {
	dir := t.TempDir()
	p, path := planned(t, dir)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	defer signal.Stop(terminated)
	old := held(t, dir, p)
	next := make(chan *State)
	go func() {
		<-terminated
		if err := old.Release(); err != nil {
			t.Error(err)
		}
		s, err := Hold(t.Context(), dir, p)
		if err != nil {
			t.Error(err)
		}
		next <- s
	}()
	found := &State{Plan: p, PID: sleeper(t).Process.Pid, dir: dir} // an outdated note
	if _, err := found.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := <-next
	if s == nil {
		return
	}
	if !s.Alive() {
		t.Error("the next network is not alive any more")
	}
	if _, err := os.Stat(path + ".json"); err != nil {
		t.Error(err)
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
}

// flaky fails twice before each connection, as accept(2) of a process with too many open files.
type flaky struct {
	net.Listener
	accepts int
	serves  int
}

func (f *flaky) Accept() (net.Conn, error) {
	f.accepts++
	if f.accepts%3 != 0 {
		return nil, unix.EMFILE
	}
	if f.serves--; f.serves < 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	return c, nil
}

// An error that may pass does not end the answers.
func TestServeOutlivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered, begin := 0, time.Now()
		serve(&flaky{serves: 2}, func(net.Conn) { answered++ })
		if answered != 2 {
			t.Errorf("%d answers, want 2", answered)
		}
		if time.Since(begin) == 0 {
			t.Error("serve does not pause after an error")
		}
	})
}

// A note is followed only where it names things that could have been made for a network: all that it names is removed,
// by root.
func TestNoteOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	for _, namespace := range []string{"", "..", "wan-n-a/../../../etc", "mine"} {
		s := &State{Plan: &Plan{Name: "n", Sites: []PlannedSite{{Name: "a", Namespace: namespace}}}, dir: dir}
		if err := s.write(); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(dir, "n"); err == nil || !strings.Contains(err.Error(), "is not a note of a network") {
			t.Errorf("namespace %q: %v", namespace, err)
		}
	}
}

// Two networks whose names and sites make the same namespaces are not held at a time: the end of one would be the
// other's.
func TestNamespacesOfAnother(t *testing.T) {
	dir := t.TempDir()
	plan := func(topology, site string) *Plan {
		return &Plan{Name: topology, Sites: []PlannedSite{{Name: site, Namespace: namespaceOf(topology, site)}}}
	}
	first, err := Hold(t.Context(), dir, plan("a", "b-c"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(t.Context(), dir, plan("a-b", "c")); err == nil || !strings.Contains(err.Error(), "namespace wan-a-b-c is one of network a") {
		t.Errorf("beside it: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := Hold(t.Context(), dir, plan("a-b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}
