package tunnel

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// tcpEnds returns both ends of a TCP connection.
func tcpEnds(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := Listen(CarrierTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// tuned returns a connection under BBR over which a MiB has gone.
func tuned(t *testing.T) *bbrSocket {
	t.Helper()
	near, far := tcpEnds(t)
	name, b := tune(near, "auto", nil, slog.New(slog.DiscardHandler))
	require.Named(t, "bbr", name == bbr, "the kernel module tcp_bbr, and net.ipv4.tcp_allowed_congestion_control if not root")
	go near.Write(make([]byte, mib))
	if _, err := io.ReadFull(far, make([]byte, mib)); err != nil {
		t.Fatal(err)
	}
	return b
}

// on calls f with the file descriptor of a connection that the test keeps open.
func on(t *testing.T, b *bbrSocket, f func(fd int) error) {
	t.Helper()
	var err error
	if closed := b.raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		t.Fatal(closed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestBBRThatBeginsAnewKeepsTheWindowAndForgetsTheRest(t *testing.T) {
	b := tuned(t)
	var before, after reading
	on(t, b, func(fd int) (err error) { before, err = readBBR(fd); return err })
	if before.bandwidth == 0 || before.sent == 0 {
		t.Fatalf("the kernel says %+v of a connection that has carried a MiB", before)
	}
	on(t, b, b.restart)
	on(t, b, func(fd int) (err error) { after, err = readBBR(fd); return err })
	if after.bandwidth != 0 || after.window != before.window {
		t.Errorf("it was %+v, and has begun anew as %+v", before, after)
	}
	if ratio := after.pacing / (startupGain * after.window / after.rtt.Seconds()); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("it has begun anew as %+v: that is %.2f of the pacing that is due to the window", after, ratio)
	}
	on(t, b, func(fd int) error {
		name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if name != bbr {
			t.Errorf("the connection is under %q now", name)
		}
		return err
	})
}

func TestBBRThatIsNotGivenBackIsSaid(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		failures int
		want     string
	}{{0, bbr}, {1, bbr}, {2, reno}} {
		b := tuned(t)
		var said bytes.Buffer
		b.log = slog.New(slog.NewTextHandler(&said, nil))
		left := c.failures
		b.set = func(fd int, name string) error {
			if name == bbr && left > 0 {
				left--
				return refused
			}
			return setCongestion(fd, name)
		}
		on(t, b, func(fd int) error {
			if err := b.restart(fd); errors.Is(err, refused) != (c.want == reno) {
				t.Errorf("%d failures: %v", c.failures, err)
			}
			has, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
			if has != c.want || b.control(bbr) != c.want {
				t.Errorf("%d failures: the connection has %q, and is said to have %q; want %q", c.failures, has, b.control(bbr), c.want)
			}
			return err
		})
		if warned := strings.Contains(said.String(), "level=WARN"); warned != (c.want == reno) {
			t.Errorf("%d failures: the log says %q", c.failures, &said)
		}
	}
}

func TestLoweredPacingIsNoBound(t *testing.T) {
	b := tuned(t)
	on(t, b, func(fd int) error { return lowerPacing(fd, 12345) })
	on(t, b, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && (info.Pacing_rate != 12345 || info.Max_pacing_rate != 1<<64-1) {
			t.Errorf("pacing at %d bytes per second and never faster than %d, want 12345 and no bound", info.Pacing_rate, info.Max_pacing_rate)
		}
		return err
	})
}

func TestOtherCongestionControlsAreLeftAlone(t *testing.T) {
	kernels := ""
	for _, c := range []struct{ asked, want string }{{"default", ""}, {reno, reno}, {"no such one", ""}} {
		near, _ := tcpEnds(t)
		name, b := tune(near, c.asked, nil, slog.New(slog.DiscardHandler))
		if c.asked == "default" {
			kernels = name
		}
		if want := cmp.Or(c.want, kernels); name != want || b != nil {
			t.Errorf("asked for %q: the connection has %q, %v; want %q, left alone", c.asked, name, b, want)
		}
	}
}

func TestStatsTellOfBBR(t *testing.T) {
	tuned(t) // it is to be had
	for asked, want := range map[string]int{"": 2, "auto": 2, bbr: 2, reno: 0} {
		paris, _ := tcpPair(t, echo, func(c *Config) { c.Congestion = asked })
		if s := paris.Stats()[0]; s.BBR != want {
			t.Errorf("asked for %q: %d of %d carriers are under BBR, want %d", asked, s.BBR, s.Carriers, want)
		}
	}
}

// helper are SocketOptions that count.
type helper struct{ congestions int }

func (h *helper) Congestion(int) error { h.congestions++; return nil }
func (h *helper) Buffers(int) error    { return nil }

// A congestion control that this process may not choose is chosen by another, and only that one.
func TestCongestionWithHelp(t *testing.T) {
	forbidden := func(_ int, name string) error {
		if name == reno {
			return nil
		}
		return unix.EPERM
	}
	h := &helper{}
	choose := helped(forbidden, bbr, h)
	if err := errors.Join(choose(0, bbr), choose(0, reno)); err != nil || h.congestions != 1 {
		t.Errorf("%v, asked %d times for help, want once", err, h.congestions)
	}
	if err := choose(0, "another"); !errors.Is(err, unix.EPERM) {
		t.Errorf("another one: %v", err)
	}
	if err := helped(forbidden, bbr, nil)(0, bbr); !errors.Is(err, unix.EPERM) {
		t.Errorf("without help: %v", err)
	}
}
