//go:build amd64 || arm64

package warden

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// programName is the first argument of a process that is a warden.
const programName = "gradproxy-warden"

// init lets each program that may start a warden be one: this program in the command's place, and tests in their own.
func init() {
	if len(os.Args) == 1 && os.Args[0] == programName {
		os.Exit(run())
	}
}

// The socket pairs of a warden.
const (
	rulesPair = iota
	socketsPair
	pairs
)

// run is the warden. It returns once the proxy has ended, or asks for something out of form, and leaves the rules as
// they are.
func run() int {
	log := apart.Begin()
	confine.Apply(confine.Needs{Capabilities: []confine.Capability{confine.NetAdmin}, Ports: []uint16{}, Rules: true}, log)
	conns, err := apart.Conns(pairs)
	if err != nil {
		log.Error("warden: its sockets are not there", "err", err)
		return 1
	}
	s := &server{log: log}
	ended := make(chan error, pairs)
	go func() { ended <- apart.Serve(conns[rulesPair], maxRequest, s.answerRules) }()
	go func() { ended <- apart.Serve(conns[socketsPair], maxSocket, s.answerSocket) }()
	if err := <-ended; err != nil {
		log.Error("warden: a request that no proxy makes: something else may run in its place", "err", err)
		return 1
	}
	return 0
}

// A server answers the requests of one proxy. The answers about sockets do not wait for the ones about rules.
type server struct {
	log   *slog.Logger
	duty  atomic.Pointer[Duty] // nil: none yet. Its content does not change
	rules intercept.Enforcer   // answerRules's alone; nil: there are none
}

// answerRules answers a request about rules, one at a time.
func (s *server) answerRules(datagram []byte, own int) ([]byte, int, error) {
	number, o, body, err := split(datagram)
	if own >= 0 {
		err = errors.Join(errForm, unix.Close(own))
	}
	if err != nil {
		return nil, -1, err
	}
	if o == opBegin {
		return s.begin(number, body)
	}
	if s.rules == nil || o != opUpdate && len(body) > 0 {
		return nil, -1, errForm
	}
	switch o {
	case opRefresh:
		err = s.rules.Refresh()
	case opUpdate:
		networks, tunnels, bad := decodeUpdate(body)
		if bad != nil || !s.serves(networks) {
			return nil, -1, errForm
		}
		err = s.rules.Update(networks, tunnels)
	case opExpire:
		err = s.rules.Expire()
	case opRemove:
		err = s.rules.Remove()
	default:
		return nil, -1, errForm
	}
	return answer(number, err), -1, nil
}

// begin puts the plan in force.
func (s *server) begin(number uint32, body []byte) ([]byte, int, error) {
	d, err := decodeDuty(body)
	if err != nil || s.duty.Load() != nil {
		return nil, -1, errForm
	}
	s.duty.Store(&d)
	if d.Plan == nil {
		return answer(number, nil), -1, nil
	}
	rules, err := intercept.OpenRules(*d.Plan, s.log)
	if err == nil { // and not an Enforcer that holds nil
		s.rules = rules
	}
	return answer(number, err), -1, nil
}

// serves reports whether the plan has a listener for each network.
func (s *server) serves(networks []netip.Prefix) bool {
	plan := s.duty.Load().Plan
	return !slices.ContainsFunc(networks, func(n netip.Prefix) bool {
		return n.Addr().Is4() && plan.Listen4 == 0 || n.Addr().Is6() && plan.Listen6 == 0
	})
}

// answer returns the answer to a request.
func answer(number uint32, err error) []byte {
	b := head(number, 0)
	if err != nil {
		words := err.Error()
		b = append(b, words[:min(len(words), maxWords)]...)
	}
	return b
}

// answerSocket answers a request about a socket.
func (s *server) answerSocket(datagram []byte, own int) ([]byte, int, error) {
	if own < 0 {
		return nil, -1, errForm
	}
	number, o, body, err := split(datagram)
	if err == nil && len(body) > 0 {
		err = errForm
	}
	if err == nil {
		err = s.dress(o, own)
	}
	closed := unix.Close(own)
	if errors.Is(err, errForm) || closed != nil {
		return nil, -1, errors.Join(err, closed)
	}
	return answer(number, err), -1, nil
}

// dress sets options of a socket.
func (s *server) dress(o op, fd int) error {
	d := s.duty.Load()
	if d == nil {
		return errForm
	}
	transparent := d.Plan != nil && d.Plan.Transparent != 0
	switch {
	case o == opMark && d.Plan != nil:
		if err := unconnected(fd); err != nil {
			return err
		}
		return intercept.MarkSocket(fd)
	case o == opClient && transparent:
		if err := unconnected(fd); err != nil {
			return err
		}
		return intercept.ClientSocket(fd)
	case o == opCongestion && d.Congestion != "":
		if protocolOf(fd) != unix.IPPROTO_TCP {
			return errForm
		}
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, d.Congestion)
	case o == opBuffers:
		if protocolOf(fd) != unix.IPPROTO_UDP {
			return errForm
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tunnel.DatagramBuffer),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, tunnel.DatagramBuffer))
	}
	return errForm
}

// protocolOf returns the protocol of a socket, -1 of another file.
func protocolOf(fd int) int {
	p, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return -1
	}
	return p
}

// unconnected returns an error unless fd is a TCP socket that is not connected, and does not listen.
func unconnected(fd int) error {
	const tcpClose = 7 // TCP_CLOSE of linux/tcp_states.h
	if protocolOf(fd) != unix.IPPROTO_TCP {
		return fmt.Errorf("%w: the descriptor is no TCP socket", errForm)
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != tcpClose {
		return fmt.Errorf("%w: the TCP socket is in use", errForm)
	}
	return nil
}
