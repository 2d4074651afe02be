//go:build amd64 || arm64

package prober

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
)

// programName is the first argument of a process that is a prober.
const programName = "gradproxy-prober"

// init lets each program that may start a prober be one: this program in the command's place, and tests in their own.
func init() {
	if len(os.Args) == 1 && os.Args[0] == programName {
		os.Exit(run())
	}
}

// The descriptors of a prober's socket pairs.
const (
	firstDescriptor = 3
	descriptors     = 2
)

// run is the prober. It returns once the proxy has ended, or asks for something out of form. The log goes to standard error, one JSON object a line.
func run() int {
	// The terminal and the service manager signal all processes; this one ends after the proxy, which may be draining.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	confine.Apply(confine.Needs{Capabilities: Capabilities(), Trace: true}, log)
	proxy := os.Getppid()
	s := newServer(func() (watcher, error) {
		p, err := probe.Load(proxy)
		if err != nil {
			return nil, err
		}
		return &probes{p}, nil
	})
	ended := make(chan error, descriptors)
	for fd := range descriptors {
		conn, err := connOf(os.NewFile(uintptr(firstDescriptor+fd), "proxy"))
		if err != nil {
			log.Error("prober: its sockets are not there", "err", err)
			return 1
		}
		go func() { ended <- s.serve(conn) }()
	}
	if err := <-ended; err != nil { // the kernel removes the programs
		log.Error("prober: a request that no proxy makes: something else may run in its place", "err", err)
		return 1
	}
	return 0
}

// Capabilities returns the ones that a prober keeps.
func Capabilities() []confine.Capability {
	needs := []confine.Capability{confine.BPF, confine.Perfmon, confine.SysPtrace, confine.DACReadSearch}
	if probe.NeedsSysAdmin() {
		needs = append(needs, confine.SysAdmin)
	}
	return needs
}

// probes are a watcher.
type probes struct{ *probe.Probes }

func (p *probes) Look(own netip.AddrPort, remotes ...netip.AddrPort) (watched, int, error) {
	process, pid, err := p.Probes.Look(own, remotes...)
	return process, pid, err
}

func (p *probes) Living(now time.Time) (all []watched) {
	for _, process := range p.Probes.Living(now) {
		all = append(all, process)
	}
	return all
}

// connOf returns the connection of a descriptor, which it closes.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("prober: a socket is %T", c)
	}
	return conn, nil
}

// serve answers the requests of a connection until its end, or until one is out of form.
func (s *server) serve(conn *net.UnixConn) error {
	defer conn.Close()
	datagram := make([]byte, requestLen+1) // a longer one is seen to be longer
	for {
		n, own, err := receive(conn, datagram)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		var answer, rights []byte
		fd := -1
		if err == nil {
			answer, fd, err = s.answer(datagram[:n], own)
		}
		if err != nil {
			return err
		}
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		if _, _, err := conn.WriteMsgUnix(answer, rights, nil); err != nil {
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return err
		}
	}
}

// receive receives a request and the connection that it brings; nil: none. io.EOF: the proxy has ended.
func receive(conn *net.UnixConn, datagram []byte) (n int, own *connection, err error) {
	control := make([]byte, controlLen()) // of a descriptor or two: the kernel closes others
	n, c, flags, _, err := conn.ReadMsgUnix(datagram, control)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 && c == 0 {
		return 0, nil, io.EOF
	}
	own, err = connectionIn(control[:c])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errForm
	}
	return n, own, err
}

// connectionIn returns the one connection in a control message, whose descriptors it closes; nil: there is none.
func connectionIn(control []byte) (own *connection, err error) {
	err = descriptorsIn(control, func(fds []int) (err error) {
		if len(fds) != 1 {
			return errForm
		}
		own = &connection{}
		*own, err = connectionOf(fds[0])
		return err
	})
	if err != nil {
		return nil, err
	}
	return own, nil
}

// connectionOf returns the addresses of a TCP connection, the zero connection of one that has ended.
func connectionOf(fd int) (c connection, err error) {
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.IPPROTO_TCP {
		return c, fmt.Errorf("%w: the descriptor is no TCP socket", errForm)
	}
	local, err1 := unix.Getsockname(fd)
	app, err2 := unix.Getpeername(fd)
	if errors.Is(err2, unix.ENOTCONN) {
		return connection{}, nil
	}
	if err := errors.Join(err1, err2); err != nil {
		return c, err
	}
	return connection{addressOf(local), addressOf(app)}, nil
}

func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
