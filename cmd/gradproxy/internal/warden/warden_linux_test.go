//go:build amd64 || arm64

package warden

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// recorded are rules that note the requests.
type recorded struct {
	asked    []string
	networks []netip.Prefix
	tunnels  []netip.AddrPort
	err      error
}

func (r *recorded) ask(what string) error { r.asked = append(r.asked, what); return r.err }

func (r *recorded) Refresh() error { return r.ask("refresh") }
func (r *recorded) Expire() error  { return r.ask("expire") }
func (r *recorded) Remove() error  { return r.ask("remove") }
func (r *recorded) Close() error   { return r.ask("close") }

func (r *recorded) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	r.networks, r.tunnels = networks, tunnels
	return r.ask("update")
}

// begun returns a server with rules of IPv4.
func begun(r *recorded) *server {
	s := &server{log: slog.New(slog.DiscardHandler), rules: r}
	s.duty.Store(&Duty{Plan: &intercept.Plan{Table: "gradproxy_x", Listen4: 9}})
	return s
}

func request(o op, body ...byte) []byte { return append(head(7, o), body...) }

func update(t testing.TB, networks []netip.Prefix, tunnels []netip.AddrPort) []byte {
	t.Helper()
	body, err := encodeUpdate(networks, tunnels)
	if err != nil {
		t.Fatal(err)
	}
	return request(opUpdate, body...)
}

// Requests in form are carried out, and errors come back in words, with the request's number.
func TestRequestsAreCarriedOut(t *testing.T) {
	r := &recorded{}
	s := begun(r)
	networks := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.9.9.9/8")}
	tunnels := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7443"), netip.MustParseAddrPort("[2001:db8::1]:7443")}
	for _, d := range [][]byte{request(opRefresh), update(t, networks, tunnels), request(opExpire), request(opRemove)} {
		if got, fd, err := s.answerRules(d, -1); err != nil || fd != -1 || len(got) != 4 || binary.BigEndian.Uint32(got) != 7 {
			t.Errorf("op %d: %q, %d, %v", d[4], got, fd, err)
		}
	}
	if want := []string{"refresh", "update", "expire", "remove"}; !slices.Equal(r.asked, want) {
		t.Errorf("asked %v", r.asked)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}; !slices.Equal(r.networks, want) || !slices.Equal(r.tunnels, tunnels) {
		t.Errorf("networks %v, which must lie apart, and tunnels %v", r.networks, r.tunnels)
	}
	r.err = errors.New("no more rules")
	if got, _, err := s.answerRules(request(opRefresh), -1); err != nil || string(got[4:]) != "no more rules" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := encodeUpdate(make([]netip.Prefix, maxPlaces), tunnels); !errors.Is(err, errMany) {
		t.Errorf("too many networks: %v", err)
	}
}

// After the first request a proxy cannot have other rules made, nor any that a request out of form names.
func TestHostileDuties(t *testing.T) {
	v6 := update(t, []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, nil)
	whole := update(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7443")})
	changed := func(at int, b byte) []byte {
		d := slices.Clone(whole)
		d[at] = b
		return d
	}
	other, err := json.Marshal(Duty{Plan: &intercept.Plan{Table: "others"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string][]byte{
		"empty": {}, "short": {0, 0, 0, 7}, "no op": request(0), "unknown op": request(99), "a socket's op": request(opMark), "refresh of more": request(opRefresh, 1),
		"a second duty": request(opBegin, other...), "cut short": whole[:len(whole)-1], "more networks than there are": changed(8, 3), "very many": changed(5, 255),
		"a family of its own": changed(9+17, 9), "IPv6 said to be IPv4": v6[:len(v6)-1], "a network of 200 bits": changed(9+16, 200), "a family without a listener": v6,
	} {
		r := &recorded{}
		if got, _, err := begun(r).answerRules(d, -1); !errors.Is(err, errForm) || len(r.asked) > 0 {
			t.Errorf("%s: %q, %v, rules: %v", name, got, err, r.asked)
		}
	}
	for o := opBegin; o <= opBuffers; o++ {
		s := &server{log: slog.New(slog.DiscardHandler)}
		if got, _, err := s.answerRules(request(o), -1); !errors.Is(err, errForm) {
			t.Errorf("op %d before a duty: %q, %v", o, got, err)
		}
	}
}

// sockets returns descriptors of sockets in several states, and of a file, by names.
func sockets(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	add := func(name string, fd int, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		all[name] = fd
		return fd
	}
	make := func(name string, family, kind int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return add(name, fd, err)
	}
	make("TCP", unix.AF_INET, unix.SOCK_STREAM)
	make("TCP of IPv6", unix.AF_INET6, unix.SOCK_STREAM)
	make("UDP", unix.AF_INET, unix.SOCK_DGRAM)
	make("Unix", unix.AF_UNIX, unix.SOCK_STREAM)
	listener, connected := make("listener", unix.AF_INET, unix.SOCK_STREAM), make("connected", unix.AF_INET, unix.SOCK_STREAM)
	if err := errors.Join(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(listener, 1)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(listener)
	if err := errors.Join(err, unix.Connect(connected, at)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	add("file", fd, err)
	return all
}

// Only sockets that are about to dial are marked, and each kind of socket gets the options of its kind alone. A
// descriptor that is something else ends the warden, which keeps none of them.
func TestHostileSockets(t *testing.T) {
	require.Root(t)
	const restricted = "reno" // every kernel has it
	all := sockets(t)
	option := func(name string, level, option int) int {
		v, err := unix.GetsockoptInt(all[name], level, option)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, x := range []struct {
		op   op
		duty Duty
		may  []string
		done func(name string) bool
	}{
		{opMark, Duty{Plan: &intercept.Plan{}}, []string{"TCP", "TCP of IPv6"}, func(name string) bool { return option(name, unix.SOL_SOCKET, unix.SO_MARK) == intercept.Mark }},
		{opMark, Duty{}, nil, nil},
		{opClient, Duty{Plan: &intercept.Plan{}}, nil, nil},
		{opClient, Duty{Plan: &intercept.Plan{Transparent: 1}}, []string{"TCP", "TCP of IPv6"}, func(name string) bool {
			if name == "TCP" {
				return option(name, unix.SOL_IP, unix.IP_TRANSPARENT) == 1
			}
			return option(name, unix.SOL_IPV6, unix.IPV6_TRANSPARENT) == 1
		}},
		{opCongestion, Duty{}, nil, nil},
		{opCongestion, Duty{Congestion: restricted}, []string{"TCP", "TCP of IPv6", "listener", "connected"}, func(name string) bool {
			c, err := unix.GetsockoptString(all[name], unix.IPPROTO_TCP, unix.TCP_CONGESTION)
			return err == nil && c == restricted
		}},
		{opBuffers, Duty{}, []string{"UDP"}, func(name string) bool { return option(name, unix.SOL_SOCKET, unix.SO_RCVBUF) >= tunnel.DatagramBuffer }},
		{opRefresh, Duty{Plan: &intercept.Plan{}}, nil, nil},
	} {
		for name, fd := range all {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := &server{}
			s.duty.Store(&x.duty)
			got, _, err := s.answerSocket(request(x.op), own)
			switch may := slices.Contains(x.may, name); {
			case may && (err != nil || len(got) != 4 || !x.done(name)):
				t.Errorf("op %d for %s: %q, %v", x.op, name, got, err)
			case !may && !errors.Is(err, errForm):
				t.Errorf("op %d for %s: %q, %v", x.op, name, got, err)
			}
			if _, err := unix.FcntlInt(uintptr(own), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("op %d for %s: the descriptor is kept", x.op, name)
			}
		}
	}
	s := begun(&recorded{})
	if _, _, err := s.answerSocket(request(opMark), -1); !errors.Is(err, errForm) {
		t.Errorf("without a socket: %v", err)
	}
	own, err := unix.Dup(all["TCP"])
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.answerRules(request(opRefresh), own); !errors.Is(err, errForm) {
		t.Errorf("a socket with a request about rules: %v", err)
	}
}

// Requests of any bytes end the warden or are answered, and never make other rules.
func FuzzDuties(f *testing.F) {
	f.Add(request(opRefresh))
	f.Add(update(f, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7443")}))
	f.Add(request(opBegin, []byte(`{"Plan":{"Table":"x"}}`)...))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		r := &recorded{}
		s := begun(r)
		if got, fd, err := s.answerRules(datagram, -1); fd != -1 || err == nil && (len(got) != 4 || len(r.asked) != 1) || err != nil && len(r.asked) > 0 {
			t.Errorf("answer %q, %d, %v: %v", got, fd, err, r.asked)
		}
		for _, n := range r.networks {
			if !n.Addr().Is4() || n != n.Masked() {
				t.Errorf("network %v", n)
			}
		}
		if table := s.duty.Load().Plan.Table; table != "gradproxy_x" {
			t.Errorf("table %s", table)
		}
		if _, _, err := s.answerSocket(datagram, -1); err == nil {
			t.Error("an answer about no socket")
		}
	})
}

// inNamespace starts a warden of a plan on a thread in a network namespace of its own, and calls f there.
func inNamespace(t testing.TB, d Duty, lost func(error), f func(c *Client)) {
	t.Helper()
	require.Root(t)
	netns.New(t).Do(func() {
		c, err := Start(d, slog.New(slog.DiscardHandler), lost)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		f(c)
	})
}

func plan() *intercept.Plan {
	c := intercept.RedirectConfig{Site: "kept", Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}
	p := c.Plan(9, 0)
	return &p
}

// markSocket marks a new socket.
func markSocket(t testing.TB, c *Client) error {
	t.Helper()
	return c.Mark("tcp4", "", newSocket(t))
}

// newSocket returns a socket that is closed at the test's end.
func newSocket(t testing.TB) syscall.RawConn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Without its warden a client has errors: for marks only while the rules may be in force, by which a connection could
// come back. The warden may have renewed them until its end.
func TestWithoutAWarden(t *testing.T) {
	ends := make(chan error, 1)
	inNamespace(t, Duty{Plan: plan()}, func(err error) { ends <- err }, func(c *Client) {
		at := func(d time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.now = func() time.Time { return time.Now().Add(d) }
		}
		if err := errors.Join(markSocket(t, c), c.Refresh(), c.Update([]netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")}, nil)); err != nil {
			t.Error(err)
		}
		at(time.Hour)
		if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if err := <-ends; err == nil {
			t.Error("no reason of its end")
		}
		if err := markSocket(t, c); err == nil {
			t.Error("a socket goes without a mark while the rules may be in force")
		}
		at(time.Hour + intercept.Timeout)
		if err := markSocket(t, c); err != nil {
			t.Errorf("once the rules have no force: %v", err)
		}
		for name, err := range map[string]error{"refresh": c.Refresh(), "expire": c.Expire(), "remove": c.Remove()} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}

// stopProcess stops a process, and returns once all of its threads are.
func stopProcess(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	runs := func(file string) bool {
		stat, err := os.ReadFile(file)
		return err == nil && !strings.Contains(string(stat), ") T ")
	}
	for {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatal(tasks, err)
		}
		if !slices.ContainsFunc(tasks, runs) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Of the dials that want marks of a warden which is stopped one asks it, and the others wait for nothing more. It is
// asked again once the late answer has come, which is not taken for another's; a warden that ends meanwhile is seen to
// have ended.
func TestDialsDoNotQueueForAStoppedWarden(t *testing.T) {
	ends := make(chan error, 1)
	inNamespace(t, Duty{Plan: plan()}, func(err error) { ends <- err }, func(c *Client) {
		stop := func() {
			stopProcess(t, c.Pid())
			asked := c.sockets.number
			for i := range 4 {
				within := socketWithin
				if i > 0 {
					within = time.Hour // which the test does not have
				}
				err := newSocket(t).Control(func(fd uintptr) {
					if err := c.ask(&c.sockets, opMark, nil, int(fd), within); !errors.Is(err, errLate) {
						t.Errorf("mark %d of a warden that is stopped: %v", i, err)
					}
				})
				if err != nil {
					t.Error(err)
				}
			}
			if n := c.sockets.number - asked; n != 1 {
				t.Errorf("%d dials have asked a warden that is stopped, want one", n)
			}
		}
		stop()
		if err := syscall.Kill(c.Pid(), syscall.SIGCONT); err != nil {
			t.Error(err)
		}
		for errors.Is(markSocket(t, c), errLate) { // without an end: the test's
			time.Sleep(time.Millisecond)
		}
		if err := markSocket(t, c); err != nil {
			t.Errorf("once it runs again: %v", err)
		}
		stop()
		if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if err := <-ends; err == nil {
			t.Error("no reason of its end")
		}
		if err := markSocket(t, c); err == nil || errors.Is(err, errLate) {
			t.Errorf("once it has ended: %v", err)
		}
	})
}

// Options of tunnels' sockets are set without rules. A congestion control that is none of the warden's duty is refused
// as the kernel would.
func TestOptionsOfSockets(t *testing.T) {
	for congestion, want := range map[string]error{"reno": nil, "": unix.EPERM} {
		inNamespace(t, Duty{Congestion: congestion}, func(err error) { t.Error(err) }, func(c *Client) {
			all := sockets(t)
			if err := c.Congestion(all["connected"]); !errors.Is(err, want) {
				t.Errorf("congestion control %q: %v", congestion, err)
			}
			if got, err := unix.GetsockoptString(all["connected"], unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || want == nil && got != congestion {
				t.Errorf("congestion control %q, want %q (%v)", got, congestion, err)
			}
			if err := c.Buffers(all["UDP"]); err != nil {
				t.Error(err)
			}
			if n, err := unix.GetsockoptInt(all["UDP"], unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil || n < tunnel.DatagramBuffer {
				t.Errorf("a buffer of %d bytes (%v)", n, err)
			}
		})
	}
}

// A warden that is asked for something out of form ends.
func TestWardenEndsByARequestOutOfForm(t *testing.T) {
	ends := make(chan error, 1)
	inNamespace(t, Duty{Plan: plan()}, func(err error) { ends <- err }, func(c *Client) {
		if err := c.ask(&c.rules, opBegin, []byte("{}"), -1, socketWithin); err == nil {
			t.Error("a second duty")
		}
		if err := <-ends; err == nil {
			t.Error("no reason of its end")
		}
	})
}

// As many networks as a transaction of nf_tables has room for are put in force, and changed.
func TestManyNetworks(t *testing.T) {
	p := plan()
	p.Networks = nil
	for i := range 1000 {
		p.Networks = append(p.Networks, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0}), 24))
	}
	inNamespace(t, Duty{Plan: p}, func(error) {}, func(c *Client) {
		if err := c.Update(p.Networks[1:], nil); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkMark measures the price of a mark by a warden for a dial.
//
//	sudo go test ./cmd/gradproxy/internal/warden -run '^$' -bench Mark
func BenchmarkMark(b *testing.B) {
	require.Root(b)
	for _, way := range []string{"none", "in this process", "warden"} {
		b.Run(way, func(b *testing.B) {
			inNamespace(b, Duty{Plan: plan()}, func(error) {}, func(c *Client) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Error(err)
					return
				}
				defer l.Close()
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, c) // until the dialler resets it
						c.Close()
					}
				}()
				d := net.Dialer{Control: map[string]func(_, _ string, _ syscall.RawConn) error{"none": nil, "in this process": intercept.Control, "warden": c.Mark}[way]}
				d.SetMultipathTCP(false)
				for b.Loop() {
					conn, err := d.Dial("tcp", l.Addr().String())
					if err != nil {
						b.Error(err)
						return
					}
					conn.(*net.TCPConn).SetLinger(0)
					conn.Close()
				}
			})
		})
	}
}
