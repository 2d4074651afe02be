package tunnel

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tune sets the options of a carrier's connection, if it is TCP. One that the kernel refuses is left as it is. It
// returns the congestion control that the connection has, and that itself if it is BBR which may begin anew. options
// sets what this process may not; nil: nothing does.
func tune(conn net.Conn, congestion string, options SocketOptions, log *slog.Logger) (name string, b *bbrSocket) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return "", nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return "", nil
	}
	adaptive := congestion == "" || congestion == "auto"
	if adaptive {
		congestion = bbr
	}
	choose := helped(setCongestion, congestion, options)
	raw.Control(func(fd uintptr) { // fails only when closed
		set := func(option, value int) {
			if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value); err != nil {
				log.Debug("TCP option refused", "option", option, "value", value, "err", err)
			}
		}
		set(unix.TCP_NODELAY, 1)
		set(unix.TCP_NOTSENT_LOWAT, notSentLowat)
		set(unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		if congestion != "default" {
			if err := choose(int(fd), congestion); err != nil {
				log.Debug("TCP congestion control refused, the kernel's default stays", "name", congestion, "err", err)
			}
		}
		name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) // it is for people to see
	})
	if adaptive && name == bbr {
		b = &bbrSocket{raw: raw, log: log, set: choose}
	}
	return name, b
}

// helped returns set, with the help of options where this process may not give a socket the congestion control of that
// name.
func helped(set func(fd int, name string) error, congestion string, options SocketOptions) func(fd int, name string) error {
	if options == nil {
		return set
	}
	return func(fd int, name string) error {
		err := set(fd, name)
		if name == congestion && errors.Is(err, unix.EPERM) {
			return options.Congestion(fd)
		}
		return err
	}
}

// TryCongestion sets a congestion control, by its name in the kernel, on a socket of its own, and so finds out whether
// this process may: ENOENT where the kernel has no such control, EPERM where it takes CAP_NET_ADMIN. With CAP_NET_ADMIN
// the kernel loads the module if need be.
func TryCongestion(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Congestion controls. Every kernel has Reno and lets everyone use it.
const (
	bbr  = "bbr"
	reno = "reno"
)

// A bbrSocket is a TCP connection under BBR whose user may do the one thing about it that the kernel allows, which is
// to have it begin anew. One goroutine at a time uses it; others may ask for control.
type bbrSocket struct {
	pacer pacer
	raw   syscall.RawConn
	log   *slog.Logger
	set   func(fd int, congestion string) error // TCP_CONGESTION

	instead atomic.Pointer[string] // congestion control that the connection has since BBR was taken away and not given back; nil: it has BBR
}

// control returns the congestion control of a connection, which had that name at first. It may be called at any time.
func (b *bbrSocket) control(name string) string {
	if b == nil {
		return name
	}
	if other := b.instead.Load(); other != nil {
		return *other
	}
	return name
}

// waits notes that there is nothing to write.
func (b *bbrSocket) waits() {
	if b != nil {
		b.pacer.waits(time.Now())
	}
}

// writes prepares for n bytes that are about to be written.
func (b *bbrSocket) writes(n int) {
	if b == nil {
		return
	}
	now := time.Now()
	if !b.pacer.due(now, n) {
		return
	}
	b.raw.Control(func(fd uintptr) { b.adjust(int(fd), now) }) // fails only when closed
}

func (b *bbrSocket) adjust(fd int, now time.Time) {
	r, err := readBBR(fd)
	if err == nil {
		switch b.pacer.judge(now, r) {
		case paceAnew:
			err = b.restart(fd)
			b.log.Debug("BBR begins anew for bursts", "from", r.pacing, "window", r.window, "rtt", r.rtt, "err", err)
		case paceBefore:
			err = lowerPacing(fd, b.pacer.before())
			b.log.Debug("bursts are lost: BBR paces them as it did", "from", r.pacing, "to", b.pacer.before(), "err", err)
		}
	}
	if err != nil {
		b.pacer.over = true
		b.log.Debug("BBR is left alone", "err", err)
	}
}

// readBBR reads TCP_INFO and TCP_CC_INFO.
func readBBR(fd int) (r reading, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return r, err
	}
	own, err := unix.GetsockoptTCPCCBBRInfo(fd, unix.IPPROTO_TCP, unix.TCP_CC_INFO)
	if err != nil {
		return r, err
	}
	return reading{
		open:      info.Ca_state == 0,     // TCP_CA_Open
		startup:   own.Pacing_gain > 2<<8, // 2.89, or 2.77, of 256: no other phase has more than 1.25
		pacing:    float64(info.Pacing_rate),
		bandwidth: float64(uint64(own.Bw_hi)<<32 | uint64(own.Bw_lo)),
		window:    float64(info.Snd_cwnd) * float64(info.Snd_mss),
		rtt:       max(time.Duration(info.Rtt)*time.Microsecond, time.Microsecond),
		sent:      info.Data_segs_out,
		lost:      info.Total_retrans - min(info.Dsack_dups, info.Total_retrans), // packets that came twice had not been lost
	}, nil
}

// restart takes BBR away and gives it back: asked for the control that a socket has already, the kernel does nothing.
// The window stays.
func (b *bbrSocket) restart(fd int) error {
	if err := b.set(fd, reno); err != nil {
		return err // it still has BBR
	}
	err := b.set(fd, bbr)
	if err != nil {
		err = b.set(fd, bbr) // of memory there may be enough a moment later
	}
	if err == nil {
		return nil
	}
	name := reno
	if n, e := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); e == nil {
		name = n
	}
	b.instead.Store(&name)
	b.log.Warn("a tunnel's connection has lost BBR and goes on slower where packets are lost: load the module tcp_bbr and list bbr in net.ipv4.tcp_allowed_congestion_control, or set tunnel.congestion to bbr or default, and restart",
		"congestion", name, "err", err)
	return err
}

func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// lowerPacing lowers the pacing rate, bytes per second. BBR raises it again when it sees more arrive; a bound that
// stays is no part of it.
func lowerPacing(fd int, rate float64) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, int(min(rate, math.MaxInt32))); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, -1)
}

// Bytes of the headers of a packet of TCP. The kernel does not count the bytes of further options, which come with
// losses.
const (
	ip4Header      = 20
	ip6Header      = 40
	tcpHeader      = 20
	tcpTimestamps  = 12
	withTimestamps = 1 // of TCP_INFO's options: TCPI_OPT_TIMESTAMPS
)

// A tcpInfo is a TCP connection that can be asked for its TCP_INFO.
type tcpInfo struct {
	raw    syscall.RawConn
	header uint64 // bytes of IP's header
}

// tcpConfirmer returns the confirmer of a TCP connection; nil: it is none.
func tcpConfirmer(conn net.Conn) confirmer {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	header := uint64(ip6Header)
	if a, ok := tcp.RemoteAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
		header = ip4Header
	}
	return tcpInfo{raw, header}
}

// confirmation reads TCP_INFO. The kernel resends bytes for want of an acknowledgement after the smoothed round-trip
// time and four times its mean deviation (RFC 6298, 2.3), but does not count the bytes that wait for the window of a
// slow reader as bytes that have left.
func (t tcpInfo) confirmation() (c confirmation) {
	t.raw.Control(func(fd uintptr) { // fails only when closed
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		each := t.header + tcpHeader
		if info.Options&withTimestamps != 0 {
			each += tcpTimestamps
		}
		c = confirmation{
			network:  Traffic{info.Bytes_sent + each*uint64(info.Segs_out), info.Bytes_received + each*uint64(info.Segs_in)},
			packets:  uint64(info.Data_segs_out),
			resent:   uint64(info.Total_retrans - min(info.Dsack_dups, info.Total_retrans)),
			rtt:      time.Duration(info.Rtt) * time.Microsecond,
			backlog:  uint64(info.Notsent_bytes) + uint64(info.Unacked)*uint64(info.Snd_mss),
			waits:    info.Unacked > 0,
			silence:  max(time.Duration(info.Last_ack_recv)*time.Millisecond, 1),
			patience: time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond,
		}
	})
	return c
}
