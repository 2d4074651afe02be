//go:build amd64 || arm64

package apart

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrForm says that a datagram is out of form.
var ErrForm = errors.New("a datagram is out of form")

// firstDescriptor is the one of a process's first socket pair.
const firstDescriptor = 3

// Begin makes this process ready to be a part. A terminal or a service manager signals both processes, and the process
// that has started this one may drain first, so this one must outlive it. Begin returns the part's log, which goes to
// standard error, one JSON object per line.
func Begin() *slog.Logger {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	return slog.New(slog.NewJSONHandler(os.Stderr, nil))
}

// Conns returns this process's ends of n socket pairs.
func Conns(n int) (all []*net.UnixConn, err error) {
	for i := range n {
		c, err := ConnOf(os.NewFile(uintptr(firstDescriptor+i), "other"))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// ConnOf returns the connection of f, and closes f.
func ConnOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("a socket is %T", c)
	}
	return conn, nil
}

// Serve answers the requests of a connection until its end. If a request is out of form it returns that error. A
// request has at most limit bytes. answer returns the answer to a request and a descriptor that goes with the answer,
// or -1. It must not keep datagram. own is the descriptor that came with the request, which answer must close, or -1.
func Serve(conn *net.UnixConn, limit int, answer func(datagram []byte, own int) (answer []byte, fd int, err error)) error {
	defer conn.Close()
	datagram := make([]byte, limit+1) // a longer one is seen to be longer
	control := make([]byte, ControlLen())
	for {
		n, own, err := receive(conn, datagram, control)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		var words, rights []byte
		fd := -1
		if err == nil {
			words, fd, err = answer(datagram[:n], own)
		}
		if err != nil {
			return err
		}
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		if _, _, err := conn.WriteMsgUnix(words, rights, nil); err != nil {
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return err
		}
	}
}

// receive receives a request and the descriptor that it brings; -1: none. io.EOF: the process that asks has ended.
func receive(conn *net.UnixConn, datagram, control []byte) (n, own int, err error) {
	n, c, flags, _, err := conn.ReadMsgUnix(datagram, control) // of a descriptor or two: the kernel closes others
	if err != nil {
		return 0, -1, err
	}
	if n == 0 && c == 0 {
		return 0, -1, io.EOF
	}
	fds, err := descriptorsIn(control[:c])
	if err == nil && (len(fds) > 1 || n == len(datagram) || flags&unix.MSG_CTRUNC != 0) {
		err = ErrForm
	}
	switch {
	case err != nil:
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
		return 0, -1, err
	case len(fds) == 1:
		return n, fds[0], nil
	}
	return n, -1, nil
}

// descriptorsIn returns the descriptors that a control message brings, also with an error.
func descriptorsIn(control []byte) (all []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	for i := range messages {
		fds, failed := unix.ParseUnixRights(&messages[i])
		all, err = append(all, fds...), errors.Join(err, failed)
	}
	return all, err
}

// Descriptors calls take with the descriptors that a control message brings, and closes them.
func Descriptors(control []byte, take func(fds []int) error) error {
	fds, err := descriptorsIn(control)
	if err == nil && len(fds) > 0 {
		err = take(fds)
	}
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// ControlLen returns the length of a control message with one descriptor, in bytes.
func ControlLen() int { return unix.CmsgSpace(4) }
