package site

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// BenchmarkInterception measures the cost of interception. Connections to an echo server on loopback are dialled
// directly, or made to a peer's network and redirected to the server by the rules of redirect or by the programs of
// exec. The three alternate. Reported are the 50th and 99th percentile, in microseconds, of connect(2) and of sending a
// byte and having it back; ns/op is of no interest.
//
//	sudo go test ./cmd/gradproxy/internal/site -run '^$' -bench Interception -benchtime 100x
func BenchmarkInterception(b *testing.B) {
	require.Root(b)
	group, err := cgroup.New("bench")
	require.Named(b, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	b.Cleanup(func() { // after the processes in it have ended
		if err := group.Close(); err != nil {
			b.Error(err)
		}
	})
	folder, err := group.Job()
	if err != nil {
		b.Fatal(err)
	}
	inNamespace(b, func() {
		ways := map[string]*pinger{}
		ways["direct"] = startPinger(b, echoServer(b), group.Proxy())
		ways["redirect"] = startPinger(b, redirected(b), group.Proxy())
		ways["exec"] = startPinger(b, hookedTo(b, group, folder), folder)
		for b.Loop() {
			for _, p := range ways {
				p.round(b)
			}
		}
		for name, p := range ways {
			for what, times := range map[string][]time.Duration{"connect": p.connects, "ping": p.pings} {
				slices.Sort(times)
				for _, percent := range []int{50, 99} {
					at := times[len(times)*percent/100]
					b.ReportMetric(float64(at.Nanoseconds())/1e3, name+"-"+what+"-p"+strconv.Itoa(percent)+"-us")
				}
			}
		}
	})
}

const (
	peers      = "198.18.2.0/24" // behind a wire that leads nowhere
	far4       = "198.18.2.1:20001"
	farExec    = "198.19.2.1:20001"
	execPeers  = "198.19.2.0/24" // another network, so that neither way takes the other's
	roundConns = 20
	roundPings = 20 // for each connection
)

// inNamespace runs f on a thread in a network namespace of its own, with routes to the peers: they lead to a second
// namespace, which answers nothing.
func inNamespace(b *testing.B, f func()) {
	n, nowhere := netns.New(b), netns.New(b)
	netns.Connect(n, nowhere, "wan", []string{"198.18.1.1/24"}, []string{"198.18.1.2/24"})
	for _, network := range []string{peers, execPeers} {
		n.Route(network, "198.18.1.2")
	}
	n.Do(f)
}

func sayBack(c *net.TCPConn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// echoServer returns the address of one.
func echoServer(b *testing.B) string {
	f, err := intercept.NewForward(netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort(far4), intercept.Places{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	serveEcho(b, f.Serve, f.Close)
	return f.Addr().String()
}

// redirected returns an address whose connections rules redirect to an echo server.
func redirected(b *testing.B) string {
	r, err := intercept.NewRedirect(intercept.RedirectConfig{Site: "bench", Networks: []netip.Prefix{netip.MustParsePrefix(peers)}})
	if err != nil {
		b.Fatal(err)
	}
	serveEcho(b, r.Serve, r.Close)
	return far4
}

// hookedTo returns an address; connections of the cgroup to it are redirected to an echo server.
func hookedTo(b *testing.B, group *cgroup.Group, folder string) string {
	networks := []netip.Prefix{netip.MustParsePrefix(execPeers)}
	h, err := intercept.NewHooked(intercept.HookedConfig{Networks: networks, Attach: func(listen4, listen6 uint16) (intercept.Hooks, error) {
		return bpf.Attach(bpf.Config{Cgroup: folder, Proxy: group.Proxy(), Networks: networks, First: 1024, Last: 65535,
			Listen4: listen4, Listen6: listen6, Mark: intercept.Mark, Timeout: intercept.Timeout})
	}})
	if err != nil {
		b.Fatal(err)
	}
	serveEcho(b, h.Serve, h.Close)
	return farExec
}

func serveEcho(b *testing.B, serve func(context.Context, intercept.Handler) error, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, func(c *net.TCPConn, _ netip.AddrPort, ended func()) {
			sayBack(c)
			ended()
		})
	}()
	b.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, end()); err != nil && !errors.Is(err, net.ErrClosed) {
			b.Error(err)
		}
	})
}

// A pinger is a process that measures, this test binary once more: the kernel takes connections by process.
type pinger struct {
	rounds   *json.Encoder
	answers  *json.Decoder
	connects []time.Duration
	pings    []time.Duration
}

const pingVariable = "GRADPROXY_SITE_TEST_PINGS"

func TestMain(m *testing.M) {
	if address := os.Getenv(pingVariable); address != "" {
		ping(netip.MustParseAddrPort(address))
		return
	}
	require.ManyAtOnce()
	os.Exit(m.Run())
}

func startPinger(b *testing.B, address, folder string) *pinger {
	group, err := os.Open(folder)
	if err != nil {
		b.Fatal(err)
	}
	defer group.Close()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), pingVariable+"="+address)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	return &pinger{rounds: json.NewEncoder(in), answers: json.NewDecoder(out)}
}

// measured holds the times of a round.
type measured struct {
	Connects, Pings []time.Duration
	Err             string
}

func (p *pinger) round(b *testing.B) {
	var m measured
	if err := errors.Join(p.rounds.Encode("go"), p.answers.Decode(&m)); err != nil || m.Err != "" {
		b.Fatal(err, m.Err)
	}
	p.connects, p.pings = append(p.connects, m.Connects...), append(p.pings, m.Pings...)
}

// ping measures one round for each line on standard input. It makes the system calls itself: Go's poller has its own
// time.
func ping(to netip.AddrPort) {
	rounds, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	runtime.LockOSThread()
	for {
		var order string
		if rounds.Decode(&order) != nil {
			return
		}
		var m measured
		for range roundConns {
			if err := m.connection(to); err != nil {
				m.Err = err.Error()
			}
		}
		if answers.Encode(m) != nil {
			return
		}
	}
}

func (m *measured) connection(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	began := time.Now()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	m.Connects = append(m.Connects, time.Since(began))
	one := make([]byte, 1)
	for range roundPings {
		began := time.Now()
		if _, err := unix.Write(fd, one); err != nil {
			return os.NewSyscallError("write", err)
		}
		if _, err := unix.Read(fd, one); err != nil {
			return os.NewSyscallError("read", err)
		}
		m.Pings = append(m.Pings, time.Since(began))
	}
	return nil
}
