package wan

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A prober measures one direction of a link that nobody else uses. Times are the ones that the kernel notes when a
// packet comes (SO_TIMESTAMPNS), so that a machine whose processors are busy does not make a link look slow.
type prober struct {
	question
	from, to *wansim.Namespace
	addr     netip.Addr // of the far site
}

// all measures everything once.
func (p *prober) all(ctx context.Context) (a answer, err error) {
	if a.rtt, err = p.roundTrip(ctx); err == nil {
		if a.sent, a.lost, err = p.losses(ctx); err == nil && p.rate > 0 {
			a.rate, err = p.bulk(ctx)
			select { // until the queues are empty, for the next question
			case <-time.After(p.queueDrain + p.delay):
			case <-ctx.Done():
			}
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a, err
}

// sockets opens a datagram socket at each site, the near one's connected to the far one's. Both end with ctx or by
// closing.
func (p *prober) sockets(ctx context.Context) (near, far *net.UDPConn, end func(), err error) {
	err = p.to.Do(func() (err error) {
		far, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.addr, 0)))
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	err = p.from.Do(func() (err error) {
		near, err = net.DialUDP("udp", nil, far.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, far.Close())
	}
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	end = func() { stop(); near.Close(); far.Close() }
	if err := errors.Join(prepare(near), prepare(far)); err != nil {
		end()
		return nil, nil, nil, err
	}
	return near, far, end, nil
}

// prepare gives a socket room for all probes and makes the kernel note when packets come.
func prepare(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var err2 error
	err = raw.Control(func(fd uintptr) {
		err2 = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	})
	return errors.Join(err, err2)
}

// receive returns the next datagram, in buf, from whom it is, and when it came.
func receive(c *net.UDPConn, buf []byte) (n int, from netip.AddrPort, at time.Time, err error) {
	var oob [64]byte
	n, oobn, _, from, err := c.ReadMsgUDPAddrPort(buf, oob[:])
	if err != nil {
		return 0, from, at, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, from, at, fmt.Errorf("time of a packet: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return n, from, time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return 0, from, at, errors.New("the kernel does not note when packets come")
}

// roundTrip returns the lower quartile of round trips, one at a time. The time that the far site takes to answer is not
// part of them.
func (p *prober) roundTrip(ctx context.Context) (time.Duration, error) {
	near, far, end, err := p.sockets(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	go answerProbes(far)
	apart := max(5*time.Millisecond, p.jitter[0], p.jitter[1], p.own[0], p.own[1])
	failed := make(chan error, 1)
	go urgently(func() {
		var b [probePayload]byte
		failed <- pace(ctx, rttProbes, apart, func(i int) error {
			binary.BigEndian.PutUint32(b[:], uint32(i))
			binary.BigEndian.PutUint64(b[4:], uint64(time.Now().UnixNano()))
			_, err := near.Write(b[:])
			return err
		})
	})
	// Probes that are lost on the way are not waited for longer than this.
	near.SetReadDeadline(time.Now().Add(apart*rttProbes + p.rtt + p.jitter[0] + p.jitter[1] + time.Second))
	var took []time.Duration
	var b [probePayload]byte
	for len(took) < rttProbes {
		n, _, at, err := receive(near, b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, err
		}
		if n == probePayload {
			leave := time.Unix(0, int64(binary.BigEndian.Uint64(b[4:])))
			there := time.Duration(binary.BigEndian.Uint64(b[12:])) // the bytes that the far site took
			took = append(took, at.Sub(leave)-there)
		}
	}
	if err := <-failed; err != nil || len(took) == 0 {
		return 0, err // without one all are lost, which judge says
	}
	slices.Sort(took)
	return took[len(took)/4], nil
}

// answerProbes sends each probe back with how long that took, until its socket is closed.
func answerProbes(far *net.UDPConn) {
	var b [probePayload]byte
	for {
		n, from, at, err := receive(far, b[:])
		if err != nil {
			return
		}
		if n == probePayload {
			binary.BigEndian.PutUint64(b[12:], uint64(time.Since(at)))
			far.WriteToUDPAddrPort(b[:], from)
		}
	}
}

// losses sends probes one way and returns how many were sent and lost.
func (p *prober) losses(ctx context.Context) (sent, lost int, err error) {
	near, far, end, err := p.sockets(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	apart := max(100*time.Microsecond, 2*p.own[0]) // which fills no queue
	failed := make(chan error, 1)
	go urgently(func() {
		var b [probePayload]byte
		failed <- pace(ctx, lossProbes, apart, func(i int) error {
			binary.BigEndian.PutUint32(b[:], uint32(i))
			_, err := near.Write(b[:])
			return err
		})
		far.SetReadDeadline(time.Now().Add(p.delay + p.jitter[0] + 300*time.Millisecond))
	})
	seen := make(map[uint32]bool, lossProbes)
	var b [probePayload]byte
	for idle := false; len(seen) < lossProbes; {
		n, _, _, err := receive(far, b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) && !idle {
			// A probe that came in time may not have been read in time, nor even now, where a system call takes long.
			idle = true
			far.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		if i := binary.BigEndian.Uint32(b[:]); n == probePayload && i < lossProbes && !seen[i] {
			seen[i], idle = true, false
		}
	}
	return lossProbes, lossProbes - len(seen), <-failed
}

// urgently runs f on a thread of its own that, where that is allowed, needs not wait for other programs: probes that
// are sent late do not fill a link. Processes that it starts are not urgent.
func urgently(f func()) {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	f()
}

// pace calls send n times, apart by so much on average; delays are made up for.
func pace(ctx context.Context, n int, apart time.Duration, send func(i int) error) error {
	begin := time.Now()
	for i := range n {
		if ahead := time.Until(begin.Add(time.Duration(i) * apart)); ahead > 500*time.Microsecond {
			t := unix.NsecToTimespec(int64(ahead))
			unix.Nanosleep(&t, nil) // a signal only makes it early
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := send(i); err != nil {
			return err
		}
	}
	return nil
}
