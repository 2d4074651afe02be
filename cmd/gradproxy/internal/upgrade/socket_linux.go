package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// A Listener waits for the processes that are to take over.
type Listener struct {
	path string
	info fs.FileInfo // of the socket
	*net.UnixListener
}

// Listen returns a Listener at path, where no process may listen any more. A socket that is there is replaced, and its
// folder made if it is missing.
func Listen(path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err != nil {
		l.Close()
		os.Remove(fresh)
		return nil, err
	}
	return &Listener{path, info, l}, nil
}

// Close ends Accept, and removes the socket unless another process has put its own there.
func (l *Listener) Close() error {
	if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
		_ = os.Remove(l.path) // one that stays is replaced
	}
	return l.UnixListener.Close()
}

// private returns an error if others than this user and root can write to a folder.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != uint32(os.Geteuid()) && owner != 0 {
		return fmt.Errorf("the folder %s belongs to user %d: name a folder of this process's user", dir, owner)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("the folder %s has mode %#o, so others can put a socket there: chmod 700 it, or name another one", dir, mode)
	}
	return nil
}

// sameUser returns an error unless the process at the other end is of this process's user.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		err = e
	}
	if err != nil {
		return err
	}
	return permitted(cred.Uid, uint32(os.Geteuid()))
}

// permitted returns an error unless both processes are of one user.
func permitted(theirs, ours uint32) error {
	if theirs != ours {
		return fmt.Errorf("the process at its other end is of user %d, and this one of user %d", theirs, ours)
	}
	return nil
}

// A Giver is the old process's end of a hand-over.
type Giver struct {
	conn *net.UnixConn
	Request
}

// firstWithin is how long the other end may take for its first message.
const firstWithin = 10 * time.Second

// Accept waits for a process of the same user that asks to take over the site's connections. It refuses other
// processes, and calls refused with the reason for each.
func (l *Listener) Accept(site string, refused func(error)) (*Giver, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil && intercept.Transient(err) {
			refused(fmt.Errorf("a process that asks to take over waits: %w", err))
			time.Sleep(acceptAgain)
			continue
		}
		if err != nil {
			return nil, err
		}
		c.SetDeadline(time.Now().Add(firstWithin))
		g := &Giver{conn: c}
		if err = sameUser(c); err == nil {
			if err = readMessage(c, &g.Request, maxPiece); err == nil {
				switch {
				case g.Protocol != Protocol:
					err = fmt.Errorf("it speaks version %d of the hand-over, this process %d", g.Protocol, Protocol)
				case g.Site != site:
					err = fmt.Errorf("it is of site %q, and this process of %q", g.Site, site)
				}
			}
			if err != nil {
				_ = writeMessage(c, &Answer{Protocol: Protocol, Error: err.Error()})
			}
		}
		if err == nil {
			c.SetDeadline(time.Time{})
			return g, nil
		}
		c.Close()
		refused(fmt.Errorf("a process was refused that asked to take over: %w", err))
	}
}

// acceptAgain is the pause after an accept that has failed for want of descriptors or memory.
const acceptAgain = time.Second

// Refuse tells the new process why nothing is handed over.
func (g *Giver) Refuse(why error) error {
	g.conn.SetDeadline(time.Now().Add(firstWithin))
	return errors.Join(writeMessage(g.conn, &Answer{Protocol: Protocol, PID: os.Getpid(), Error: why.Error()}), g.conn.Close())
}

// Give hands everything over, and returns nil once the new process has it. After an error this process still has
// everything. files has the descriptors, those of the listeners first. state writes the state of the tensors.
func (g *Giver) Give(ctx context.Context, a *Answer, files []*os.File, state func(io.Writer) error) error {
	defer context.AfterFunc(ctx, func() { g.conn.SetDeadline(time.Unix(1, 0)) })()
	a.Protocol, a.PID = Protocol, os.Getpid()
	if err := writeMessage(g.conn, a); err != nil {
		return err
	}
	for len(files) > 0 {
		n := min(len(files), perMessage)
		if err := sendFiles(g.conn, files[:n]); err != nil {
			return err
		}
		files = files[n:]
	}
	pieces := pieceWriter{g.conn}
	if err := state(pieces); err != nil {
		return err
	}
	if err := pieces.end(); err != nil {
		return err
	}
	var t taken
	if err := readMessage(g.conn, &t, maxPiece); err != nil {
		return fmt.Errorf("the new process has not said that it has taken over: %w", noEOF(err))
	}
	if !t.Taken {
		return fmt.Errorf("the new process does not take over: %s", t.Error)
	}
	return nil
}

// Close tells the new process, after Give, that this process has let everything go.
func (g *Giver) Close() error { return g.conn.Close() }

// sendFiles sends descriptors. It leaves them as they are: File.Fd would have their connections block.
func sendFiles(c *net.UnixConn, files []*os.File) error {
	var fds []int
	var send func(i int) error
	send = func(i int) error {
		if i == len(files) {
			_, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
			return err
		}
		raw, err := files[i].SyscallConn()
		if err != nil {
			return err
		}
		var inner error
		err = raw.Control(func(fd uintptr) { // the descriptor stays open until then
			fds = append(fds, int(fd))
			inner = send(i + 1)
		})
		return errors.Join(err, inner)
	}
	return send(0)
}

// A Parcel is the descriptors and the state that another process has handed over.
type Parcel struct {
	Answer
	Files []*os.File // of Listeners, then of Connections
	State []byte     // of the tensors

	conn *net.UnixConn
}

// ErrNobody says that no process listens on the socket.
var ErrNobody = errors.New("no process is there to take over from")

// slowAfter is how often the new process is told that the old one has not let everything go yet.
const slowAfter = 10 * time.Second

// TakeOver asks the process that listens at path for everything that it has. It returns once this process has
// everything and the other process has let it go. It returns ErrNobody if no process listens. After any other error the
// other process goes on as before, or has died. TakeOver first shows everything to check, and takes nothing unless
// check returns nil. ctx bounds the time until this process has everything. After that TakeOver waits for the end of
// the other process however long it takes, and calls slow every 10 s.
func TakeOver(ctx context.Context, path string, q Request, check func(*Parcel) error, slow func()) (p *Parcel, err error) {
	d := net.Dialer{}
	c, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNobody
	}
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	defer conn.Close()
	unbound := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer unbound()
	if err := errors.Join(private(filepath.Dir(path)), sameUser(conn)); err != nil {
		return nil, err
	}
	p = &Parcel{conn: conn}
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	q.Protocol, q.PID = Protocol, os.Getpid()
	if err := writeMessage(conn, &q); err != nil {
		return p, err
	}
	if err := readMessage(conn, &p.Answer, maxMessage); err != nil {
		return p, fmt.Errorf("the old process has not answered: %w", noEOF(err))
	}
	if p.Error != "" {
		return p, fmt.Errorf("the old process, %d, carries on: %s", p.PID, p.Error)
	}
	if p.Protocol != Protocol {
		return p, fmt.Errorf("the old process speaks version %d of the hand-over, this one %d", p.Protocol, Protocol)
	}
	for n := len(p.Listeners) + len(p.Connections); len(p.Files) < n; {
		if err := p.receive(n - len(p.Files)); err != nil {
			return p, fmt.Errorf("descriptors of connections: %w", err)
		}
	}
	if p.State, err = io.ReadAll(&pieceReader{r: conn}); err != nil {
		return p, fmt.Errorf("state of tensors: %w", err)
	}
	if err := check(p); err != nil {
		_ = writeMessage(conn, &taken{Error: err.Error()}) // the old process finds out in any case
		return p, fmt.Errorf("%w (the old process, %d, carries on)", err, p.PID)
	}
	if !unbound() {
		return p, context.Cause(ctx)
	}
	return p, p.take(slow)
}

// take tells the old process that the connections are this one's, and waits until it has let them go, however long that
// takes: without them they would be lost, and with them both processes would use their sockets. An error says that the
// old process carries on, or has died before it heard of it.
func (p *Parcel) take(slow func()) error {
	p.conn.SetDeadline(time.Now().Add(firstWithin))
	told := writeMessage(p.conn, &taken{Taken: true}) // fails where the old process has refused meanwhile
	p.conn.SetDeadline(time.Time{})
	answer := make(chan error, 1)
	go func() {
		var a Answer
		err := readMessage(p.conn, &a, maxMessage)
		switch {
		case err == nil:
			err = fmt.Errorf("the old process, %d, carries on: %s", p.PID, a.Error)
		case err != io.EOF:
			err = fmt.Errorf("the old process has not let go: %w", err)
		case told != nil:
			err = told
		default:
			err = nil
		}
		answer <- err
	}()
	tick := time.NewTicker(slowAfter)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			return err
		case <-tick.C:
			slow()
		}
	}
}

// receive receives some descriptors, at most so many.
func (p *Parcel) receive(limit int) error {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4*perMessage))
	n, m, flags, _, err := p.conn.ReadMsgUnix(b[:], oob)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:m])
	if err != nil {
		return err
	}
	came := 0
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another kind
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			p.Files = append(p.Files, os.NewFile(uintptr(fd), "handed over"))
			came++
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return errors.New("there is no room for them: raise the limit of descriptors (ulimit -n, LimitNOFILE=)")
	}
	if came == 0 || came > limit {
		return fmt.Errorf("%d descriptors have come where 1 to %d are due", came, limit)
	}
	return nil
}

// Close closes the descriptors that nobody has taken out of Files.
func (p *Parcel) Close() {
	for _, f := range p.Files {
		if f != nil {
			f.Close()
		}
	}
}
