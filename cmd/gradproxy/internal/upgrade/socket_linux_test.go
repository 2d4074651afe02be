package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// oldProcess listens at a path, and has give answer the first process that asks. It returns the path.
func oldProcess(t *testing.T, give func(*Giver)) string {
	t.Helper()
	path := filepath.Join(privateDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g, err := l.Accept("paris", func(err error) { t.Error(err) })
		if err != nil {
			t.Error(err)
			return
		}
		give(g)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func nothing(io.Writer) error { return nil }

func ready(*Parcel) error { return nil }

// Once the new process has everything, no limit of time has it give that up: it waits for the old process to let go.
func TestNoLimitOnceTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	let := make(chan struct{})
	path := oldProcess(t, func(g *Giver) {
		if err := g.Give(context.Background(), &Answer{}, nil, nothing); err != nil {
			t.Error(err)
		}
		cancel()
		<-let
		g.Close()
	})
	took := make(chan error, 1)
	go func() {
		_, err := TakeOver(ctx, path, Request{Site: "paris"}, ready, func() {})
		took <- err
	}()
	select {
	case err := <-took:
		t.Errorf("TakeOver = %v before the old process has let go", err)
		close(let)
		return
	case <-ctx.Done():
	}
	select {
	case err := <-took:
		t.Errorf("TakeOver = %v before the old process has let go", err)
		close(let)
		return
	case <-time.After(200 * time.Millisecond):
	}
	close(let)
	if err := <-took; err != nil {
		t.Error(err)
	}
}

// An old process that has not waited for the new one's last message carries on, and the new one takes nothing.
func TestRefusedAfterTaken(t *testing.T) {
	path := oldProcess(t, func(g *Giver) {
		var said taken
		if err := errors.Join(writeMessage(g.conn, &Answer{Protocol: Protocol}), pieceWriter{g.conn}.end(), readMessage(g.conn, &said, maxPiece)); err != nil || !said.Taken {
			t.Error(said, err)
		}
		if err := g.Refuse(errors.New("too late")); err != nil {
			t.Error(err)
		}
	})
	_, err := TakeOver(t.Context(), path, Request{Site: "paris"}, ready, func() {})
	if err == nil || !strings.Contains(err.Error(), "carries on: too late") {
		t.Errorf("TakeOver = %v, want that the old process carries on", err)
	}
}

// A new process that finds out in time that it cannot carry the connections takes nothing, and both say why.
func TestUnreadyProcessTakesNothing(t *testing.T) {
	gave := make(chan error, 1)
	path := oldProcess(t, func(g *Giver) {
		gave <- g.Give(t.Context(), &Answer{Held: []string{"127.0.0.1:7443"}}, nil, nothing)
		g.Close()
	})
	_, err := TakeOver(t.Context(), path, Request{Site: "paris"}, func(p *Parcel) error { return fmt.Errorf("%s is too bad", p.Held) }, func() {})
	for who, err := range map[string]error{"the new process": err, "the old process": <-gave} {
		if err == nil || !strings.Contains(err.Error(), "[127.0.0.1:7443] is too bad") {
			t.Errorf("%s: %v, want why nothing is taken", who, err)
		}
	}
}

// A process that asks while descriptors are short waits, and does not end Accept.
func TestAcceptWithoutDescriptors(t *testing.T) {
	path := filepath.Join(privateDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := writeMessage(c, &Request{Protocol: Protocol, Site: "paris"}); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 1 // descriptors that are open stay so
	restore := sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	var said []error
	g, err := l.Accept("paris", func(err error) {
		said = append(said, err)
		restore()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.conn.Close()
	if len(said) != 1 || !errors.Is(said[0], unix.EMFILE) {
		t.Errorf("said %v, want once that there are no descriptors", said)
	}
}

// A process of another user neither hands over nor takes over, root's included.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() == 0 { // root alone can be another user
		t.Run("at the socket", otherUserAsks)
		t.Run("behind the socket", otherUserOffers)
	}
	for _, c := range []struct {
		theirs, ours uint32
		ok           bool
	}{{0, 0, true}, {1000, 1000, true}, {1000, 0, false}, {0, 1000, false}, {1001, 1000, false}} {
		err := permitted(c.theirs, c.ours)
		if (err == nil) != c.ok || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("a process of user %d, and this one of user %d: %v", c.theirs, c.ours, err)
		}
	}
}

const nobody = 65534

// reachable returns a folder into which every user may go.
func reachable(t *testing.T) string {
	dir, err := os.MkdirTemp("", "upgrade")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asNobody runs before, and then do on the same thread once that has become another user.
func asNobody(before, do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := before(); err != nil {
			result <- err
			return
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			result <- e
			return
		}
		result <- do()
	}()
	return <-result
}

// otherUserAsks has a process of another user, to which the socket's mode is open, ask for the connections.
func otherUserAsks(t *testing.T) {
	path := filepath.Join(reachable(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, given := make(chan error, 10), make(chan *Giver, 1)
	go func() {
		if g, err := l.Accept("paris", func(err error) { refused <- err }); err == nil {
			given <- g
		}
		close(given)
	}()
	defer func() {
		l.Close()
		<-given
	}()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := asNobody(func() error { return nil }, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	writeMessage(c.(*net.UnixConn), &Request{Protocol: Protocol, Site: "paris", PID: os.Getpid()})
	select {
	case g := <-given:
		g.Close()
		t.Fatal("the connections are given to another user")
	case err := <-refused:
		if !strings.Contains(err.Error(), "is of user 65534") {
			t.Errorf("refused for another reason: %v", err)
		}
	}
}

// otherUserOffers has a process of another user listen at a socket of this one's.
func otherUserOffers(t *testing.T) {
	path := filepath.Join(reachable(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	bind := func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) }
	if err := asNobody(bind, func() error { return unix.Listen(fd, 1) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := TakeOver(ctx, path, Request{Site: "paris"}, ready, func() {})
	if err == nil || !strings.Contains(err.Error(), "is of user 65534") {
		t.Errorf("what another user offers: %v, %v", p, err)
	}
}
