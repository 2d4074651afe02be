package site

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/upgrade"
	"github.com/gradproxy/gradproxy/proxy/history"
)

// upgradableBy returns the socket and the configuration of a site that another process can take over.
func upgradableBy(t *testing.T, dir string) (socket, text string) {
	t.Helper()
	socket = filepath.Join(dir, "upgrade.sock")
	return socket, fmt.Sprintf("upgrade: {socket: %s, within: 1m}\n", socket)
}

// An echoed is a stream that never pauses, and comes back.
type echoed struct {
	c    net.Conn
	stop chan struct{}
	done chan error
}

// echoAll sends noise through a forward without end, and compares what comes back.
func echoAll(t *testing.T, addr string) *echoed {
	t.Helper()
	e := &echoed{c: connect(t, addr), stop: make(chan struct{}), done: make(chan error, 2)}
	noise := make([]byte, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	go func() {
		for at := 0; ; at = (at + 10_000) % (len(noise) - 10_000) {
			select {
			case <-e.stop:
				e.c.(*net.TCPConn).CloseWrite()
				e.done <- nil
				return
			default:
			}
			if _, err := e.c.Write(noise[at : at+10_000]); err != nil {
				e.done <- err
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 10_000)
		for at := 0; ; at = (at + 10_000) % (len(noise) - 10_000) {
			if _, err := io.ReadFull(e.c, b); err != nil {
				if err == io.EOF {
					err = nil
				}
				e.done <- err
				return
			}
			if !bytes.Equal(b, noise[at:at+10_000]) {
				e.done <- fmt.Errorf("other bytes came back")
				return
			}
		}
	}()
	return e
}

// end ends the stream in order.
func (e *echoed) end(t *testing.T) {
	t.Helper()
	close(e.stop)
	for range 2 {
		if err := <-e.done; err != nil {
			t.Error(err)
		}
	}
}

// Another process takes over the forwards and the connections of a site, three times, and then of the other site; no
// connection is lost, and none refused.
func TestAnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, here := upgradableBy(t, t.TempDir())
	_, there := upgradableBy(t, t.TempDir())
	more := forwardTo(t, echo(t, "127.0.2.9")) + here
	paris := l.run(l.load(0, more))
	tokyo := l.run(l.load(1, there))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	var streams []*echoed
	for range 4 {
		streams = append(streams, echoAll(t, paris.forwarded))
	}
	for i := range 4 {
		old := paris
		if i < 3 {
			paris = l.run(l.load(0, more))
		} else {
			old = tokyo
			tokyo = l.run(l.load(1, there))
		}
		old.wait(t)
		if log := old.log.String(); !strings.Contains(log, "another process has taken over") {
			t.Fatalf("the old process says nothing:\n%s", log)
		}
		streams = append(streams, echoAll(t, paris.forwarded))
		paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	}
	for _, e := range streams {
		e.end(t)
	}
	if log := paris.log.String(); !strings.Contains(log, "connections=6") {
		t.Errorf("the last process does not say that it took six connections over:\n%s", log)
	}
}

// The new process has the page's history from before, and does not wait for a silent receiver of the old one's metrics.
func TestSuccessorHasTheHistory(t *testing.T) {
	l := newLab(t)
	_, more := upgradableBy(t, t.TempDir())
	if err := os.Mkdir(filepath.Join(l.dir, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	var exports atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		exports.Add(1)
		<-r.Context().Done()
	}))
	defer silent.Close()
	more += "state: {dir: kept}\notlp: " + silent.URL + "\n"
	old := l.run(l.load(0, more))
	old.observed.history.Add(time.Now(), []history.Sample{{Name: history.Name{Peer: "from before", Link: true}, Raw: 7}})
	for began := time.Now(); exports.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("no export comes")
		}
	}
	r := l.run(l.load(0, more))
	old.wait(t)
	if n := exports.Load(); n > 2 {
		t.Errorf("%d exports, want the first ones of both processes at most", n)
	}
	if !slices.ContainsFunc(r.observed.history.Table(10, 0).Series, func(s history.Series) bool { return s.Peer == "from before" }) {
		t.Error("the history of the old process is lost")
	}
}

// A new process that could not carry the connections finds that out before it takes them: the old one carries on.
func TestSuccessorThatCannotStartTakesNothing(t *testing.T) {
	l := newLab(t)
	_, here := upgradableBy(t, t.TempDir())
	more := forwardTo(t, echo(t, "127.0.2.9")) + here
	paris := l.run(l.load(0, more))
	l.run(l.load(1, ""))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	stream := echoAll(t, paris.forwarded)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		change func(c *config.Config)
		want   string
	}{
		{func(c *config.Config) { c.Admin = "unix:" + filepath.Join(l.dir, "missing", "s") }, "missing/s"},
		{func(c *config.Config) { c.Admin = busy.Addr().String() }, "admin: listen 127.0.0.1:"},
		{func(c *config.Config) { c.Tunnel.Listen = busy.Addr().String() }, "tunnel: listen 127.0.0.1:"},
		{func(c *config.Config) { c.Forward[0].Listen = netip.MustParseAddrPort(busy.Addr().String()) }, "intercept: listen 127.0.0.1:"},
		{func(c *config.Config) { c.State.Dir = open }, "has mode 0777"},
	} {
		c := l.load(0, more)
		x.change(c)
		s, err := Start(c, "v0", slog.New(slog.DiscardHandler))
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "carries on") {
			t.Fatalf("Start = %v, want an error with %q, and that the old process carries on", err, x.want)
		}
		if err := talk(connect(t, paris.forwarded), "bonjour"); err != nil {
			t.Errorf("after %q: %v", x.want, err)
		}
	}
	if log := paris.log.String(); !strings.Contains(log, "the new process does not take over: state.dir") {
		t.Errorf("the old process does not say why:\n%s", log)
	}
	again := l.run(l.load(0, more+"state: {dir: kept}\n"))
	paris.wait(t)
	last := l.run(l.load(0, more+"state: {dir: kept}\n")) // whose folder the other process holds until its end
	again.wait(t)
	last.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	stream.end(t)
}

// A process that asks and then ends leaves the old one, its connections and its forwards as they were.
func TestProcessThatEndsMidwayTakesNothing(t *testing.T) {
	l := newLab(t)
	socket, here := upgradableBy(t, t.TempDir())
	paris := l.run(l.load(0, forwardTo(t, echo(t, "127.0.2.9"))+here))
	l.run(l.load(1, ""))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	stream := echoAll(t, paris.forwarded)
	message := func(text string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text }
	for _, say := range []string{"", message("{}"), message(`{"Protocol":1,"Site":"virginia"}`), "\xff\xff\xff\xff", message(`{"Protocol":1,"Site":"paris"}`)} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		io.Copy(io.Discard, c) // nothing, or a part of all
		c.Close()
	}
	for begin := time.Now(); !strings.Contains(paris.log.String(), "this one carries on"); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the process does not say that it carries on:\n%s", paris.log)
		}
	}
	if err := talk(connect(t, paris.forwarded), "bonjour"); err != nil {
		t.Error(err)
	}
	stream.end(t)
}

// After SIGTERM a process that another may take over waits for it, and ends when its last connection does.
func TestProcessWaitsForItsSuccessor(t *testing.T) {
	l := newLab(t)
	_, here := upgradableBy(t, t.TempDir())
	more := forwardTo(t, echo(t, "127.0.2.9")) + here
	paris := l.run(l.load(0, more))
	l.run(l.load(1, ""))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	stream := echoAll(t, paris.forwarded)
	paris.end() // the signal
	again := l.run(l.load(0, more))
	paris.wait(t)
	again.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	stream.end(t)
	again.end()
	again.wait(t)
}

// A hand-over that has begun goes on when the time of the drain is over: until it ends, no connection is reset.
func TestDrainWaitsForAHandOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	socket, here := upgradableBy(t, t.TempDir())
	paris := l.run(l.load(0, forwardTo(t, echo(t, "127.0.2.9"))+here+"drain: 4s\n"))
	l.run(l.load(1, ""))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	c := connect(t, paris.forwarded)
	if err := talk(c, "bonjour"); err != nil {
		t.Fatal(err)
	}
	taker, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer taker.Close()
	ask := `{"Protocol":1,"Site":"paris"}`
	if _, err := io.WriteString(taker, string(binary.BigEndian.AppendUint32(nil, uint32(len(ask))))+ask); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(taker, make([]byte, 4)); err != nil { // of the answer: all is at rest
		t.Fatal(err)
	}
	paris.end()
	c.SetReadDeadline(time.Now().Add(5 * time.Second)) // the drain would be over
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("during the hand-over: %v, want nothing", err)
	}
	taker.Close() // and takes nothing
	c.SetReadDeadline(time.Time{})
	if err := talk(c, "au revoir"); err != nil {
		t.Errorf("after the hand-over, during the drain: %v", err)
	}
	c.Close()
	paris.wait(t)
}

// A process that waits for its successor is not ready, and leaves time for its drain.
func TestProcessWithoutASuccessorDrains(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, here := upgradableBy(t, t.TempDir())
	paris := l.run(l.load(0, forwardTo(t, echo(t, "127.0.2.9"))+here+"drain: 10s\n"))
	l.run(l.load(1, ""))
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	c := connect(t, paris.forwarded)
	if err := talk(c, "bonjour"); err != nil {
		t.Fatal(err)
	}
	paris.end()
	paris.until(t, "/readyz", 503, errDraining.Error())
	for begin := time.Now(); !strings.Contains(paris.log.String(), "draining: "); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the process does not drain:\n%s", paris.log)
		}
	}
	if log := paris.log.String(); strings.Count(log, "limit=5s\n") != 2 {
		t.Errorf("the wait and the drain have not half of the time each:\n%s", log)
	}
	if err := talk(c, "au revoir"); err != nil {
		t.Errorf("during the drain: %v", err)
	}
	c.Close()
	paris.wait(t)
}

// A folder that others can write to is no place for the socket.
func TestUpgradeSocketLiesInAPrivateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := upgrade.Listen(filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "others can put a socket there") {
		t.Errorf("Listen = %v, want that the folder is open to others", err)
	}
}
