package bpf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Programs are attached to cgroups of processes, so clients in these tests are processes of their own: this test binary
// once more, which takes orders as lines of JSON.

const clientVariable = "GRADPROXY_BPF_TEST_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(clientVariable) != "" {
		obey()
		return
	}
	require.ManyAtOnce()
	os.Exit(m.Run())
}

// An order is to dial, or to send again on a connection, or to close it.
type order struct {
	Dial      string // address
	Mapped    bool   // IPv4 by a socket of IPv6
	Bind      string // address; "": none
	Multipath bool   // Multipath TCP
	Mark      int    // SO_MARK
	Device    string // SO_BINDTODEVICE
	Conn      int    // of an earlier answer, unless Dial is given
	Send      int    // bytes, which come back
	Close     bool
	Leave     string // is sent instead of waiting for a word, and then the connection is closed
}

// An answer is the outcome of an order.
type answer struct {
	Conn        int
	Local, Peer string // getsockname, getpeername
	Word        string // that the program which accepted the connection said
	Back        int    // bytes
	Err         string
	Refused     bool
}

func obey() {
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if orders.Decode(&o) != nil {
			return
		}
		a, err := carryOut(o)
		if err != nil {
			a.Err, a.Refused = err.Error(), errors.Is(err, syscall.ECONNREFUSED)
		}
		if answers.Encode(a) != nil {
			return
		}
	}
}

func carryOut(o order) (a answer, err error) {
	a.Conn = o.Conn
	if o.Dial != "" {
		if a, err = o.dial(); err != nil {
			return a, err
		}
	}
	if o.Leave != "" {
		_, err = write(a.Conn, []byte(o.Leave))
		return a, errors.Join(err, unix.Close(a.Conn))
	}
	for sent := 0; sent < o.Send; { // in turns, since the answer would fill the buffers
		n, err := write(a.Conn, make([]byte, min(o.Send-sent, 32<<10)))
		if err != nil {
			return a, os.NewSyscallError("write", err)
		}
		for back := 0; back < n; {
			m, err := read(a.Conn, make([]byte, 32<<10))
			if err != nil || m == 0 {
				return a, errors.Join(errors.New("the echo ends"), err)
			}
			back, a.Back = back+m, a.Back+m
		}
		sent += n
	}
	if o.Close {
		err = unix.Close(a.Conn)
	}
	return a, err
}

func (o *order) dial() (a answer, err error) {
	to := netip.MustParseAddrPort(o.Dial)
	family := unix.AF_INET
	if to.Addr().Is6() || o.Mapped {
		family = unix.AF_INET6
	}
	protocol := unix.IPPROTO_TCP
	if o.Multipath {
		protocol = unix.IPPROTO_MPTCP
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return a, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	a.Conn = fd
	patience := unix.Timeval{Sec: 60}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience))
	if o.Mark != 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, o.Mark))
	}
	if o.Device != "" {
		err = errors.Join(err, unix.BindToDevice(fd, o.Device))
	}
	if o.Bind != "" {
		err = errors.Join(err, unix.Bind(fd, sockaddr(family, netip.MustParseAddrPort(o.Bind))))
	}
	if err != nil {
		return a, err
	}
	if err := connect(fd, sockaddr(family, to)); err != nil {
		return a, os.NewSyscallError("connect", err)
	}
	local, err1 := unix.Getsockname(fd)
	peer, err2 := unix.Getpeername(fd)
	a.Local, a.Peer = text(local), text(peer)
	if o.Leave != "" {
		return a, errors.Join(err1, err2)
	}
	word := make([]byte, 1)
	_, err3 := read(fd, word)
	a.Word = string(word)
	return a, errors.Join(err1, err2, err3)
}

// connect goes on where a signal, as Go's runtime sends them to itself, interrupts it.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for err == unix.EINTR {
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err == nil {
			failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && failed != 0 {
				err = syscall.Errno(failed)
			}
			return err
		}
	}
	return err
}

func read(fd int, b []byte) (n int, err error) {
	for n, err = unix.Read(fd, b); err == unix.EINTR; n, err = unix.Read(fd, b) {
	}
	return n, err
}

func write(fd int, b []byte) (n int, err error) {
	for n, err = unix.Write(fd, b); err == unix.EINTR; n, err = unix.Write(fd, b) {
	}
	return n, err
}

func sockaddr(family int, a netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// text writes an address; an IPv4 one of an IPv6 socket keeps its form.
func text(s unix.Sockaddr) string {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port)).String()
	}
	return ""
}

// A client is such a process.
type client struct {
	t       *testing.T
	orders  *json.Encoder
	answers *json.Decoder
}

// startClient starts a client inside a site, in the cgroup of that folder.
func startClient(t *testing.T, s *site, folder string) *client {
	t.Helper()
	group, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), clientVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	s.Do(func() { err = cmd.Start() })
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatalf("start a client in %s: %v", filepath.Base(folder), err)
	}
	t.Cleanup(func() {
		in.Close() // and it ends
		if err := cmd.Wait(); err != nil {
			t.Errorf("client: %v", err)
		}
	})
	return &client{t, json.NewEncoder(in), json.NewDecoder(out)}
}

func (c *client) do(o order) (a answer) {
	c.t.Helper()
	if err := errors.Join(c.orders.Encode(o), c.answers.Decode(&a)); err != nil {
		c.t.Fatalf("client: %v", err)
	}
	return a
}

// whoAnswers dials, and returns the word of the program that accepts, "refused", or an error.
func (c *client) whoAnswers(o order) string {
	c.t.Helper()
	o.Close = true
	a := c.do(o)
	switch {
	case a.Refused:
		return "refused"
	case a.Err != "":
		return a.Err
	}
	return a.Word
}

// originalDst is SO_ORIGINAL_DST of an accepted connection.
func originalDst(fd int, v4 bool) (netip.AddrPort, error) {
	if v4 {
		m, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, 80) // as long as a sockaddr_in
		if err != nil {
			return netip.AddrPort{}, err
		}
		a := m.Multiaddr
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), binary.BigEndian.Uint16(a[2:4])), nil
	}
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, 80) // it begins with a sockaddr_in6
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), networkOrder(m.Addr.Port)), nil
}
