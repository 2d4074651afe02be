//go:build amd64 || arm64

package prober

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
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

// descriptors is the number of a prober's socket pairs.
const descriptors = 2

// run is the prober. It returns once the proxy has ended, or asks for something out of form. The log goes to standard
// error, one JSON object a line.
func run() int {
	log := apart.Begin()
	confine.Apply(confine.Needs{Capabilities: Capabilities(), Trace: true}, log)
	proxy := os.Getppid()
	s := newServer(func() (watcher, error) {
		p, err := probe.Load(proxy)
		if err != nil {
			return nil, err
		}
		return &probes{p}, nil
	})
	conns, err := apart.Conns(descriptors)
	if err != nil {
		log.Error("prober: its sockets are not there", "err", err)
		return 1
	}
	ended := make(chan error, descriptors)
	for _, conn := range conns {
		go func() { ended <- s.serve(conn) }()
	}
	if err := <-ended; err != nil { // the kernel removes the programs
		log.Error("prober: a request that no proxy makes: something else may run in its place", "err", err)
		return 1
	}
	return 0
}

// Capabilities returns the capabilities that a prober keeps.
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

// serve answers the requests of a connection until its end, or until one is out of form.
func (s *server) serve(conn *net.UnixConn) error {
	return apart.Serve(conn, requestLen, func(datagram []byte, fd int) ([]byte, int, error) {
		if fd < 0 {
			return s.answer(datagram, nil)
		}
		own, err := connectionOf(fd)
		if err := errors.Join(err, unix.Close(fd)); err != nil { // before the answer, or the proxy could not close it meanwhile
			return nil, -1, err
		}
		return s.answer(datagram, &own)
	})
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
