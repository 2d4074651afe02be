package wan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	mtu       = 1500
	windows   = 11                    // of a bulk transfer, whose median counts: some may fall into a pause of the machine
	window    = 50 * time.Millisecond // at least
	perWindow = 40                    // packets at least
	fast      = 500e6                 // bits per second above which packets cross joined, as only TCP's do
)

// bulk returns the bits per second that leave the bottleneck when more is offered.
func (p *prober) bulk(ctx context.Context) (float64, error) {
	if p.rate > fast && p.loss == 0 {
		return p.stream(ctx)
	}
	return p.datagrams(ctx)
}

// datagrams offers 1.3 times the rate in whole packets and counts the arrivals. As much is lost as the link is set to
// lose: losses are judged by themselves.
func (p *prober) datagrams(ctx context.Context) (float64, error) {
	if p.loss == 1 {
		return 0, nil
	}
	near, far, end, err := p.sockets(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	header := 28 // bytes of IP and UDP
	if p.addr.Is6() {
		header = 48
	}
	offered := float64(p.rate) * 1.3 / (1 - p.loss) * p.passes // where the bottleneck begins
	apart := time.Duration(mtu * 8 / offered * 1e9)
	packet := time.Duration(float64(mtu*8) / float64(p.rate) * 1e9)
	packets := perWindow
	if p.loss > 0 {
		packets = max(packets, int(4e4*p.loss/(1-p.loss))) // so that chance is a small part of the tolerance
	}
	each := min(max(window, time.Duration(packets)*packet), time.Second)
	warm := 100*time.Millisecond + 4*packet
	sending, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go urgently(func() {
		b := make([]byte, mtu-header)
		failed <- pace(sending, 1<<31, apart, func(int) error {
			_, err := near.Write(b)
			return err
		})
	})
	far.SetReadDeadline(time.Now().Add(p.delay + p.jitter[0] + warm + (windows+2)*each + 10*time.Second))
	rates, err := p.arrivals(far, header, warm, each)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		select {
		case err := <-failed:
			return 0, err
		default:
			return 0, nil // nothing passes, which judge says
		}
	}
	if err != nil {
		return 0, err
	}
	return middle(rates), nil
}

// arrivals returns the bits per second, each packet with its header, that arrive in each of some windows, after a time
// in which the way warms up.
func (p *prober) arrivals(far *net.UDPConn, header int, warm, each time.Duration) ([]float64, error) {
	var rates []float64
	var from time.Time // of the window, or of the first packet
	bytes, warming := 0, true
	b := make([]byte, mtu)
	for len(rates) < windows {
		n, _, at, err := receive(far, b)
		if err != nil {
			return nil, err
		}
		bytes += n + header
		switch took := at.Sub(from); {
		case from.IsZero():
			from = at
		case warming && took >= warm:
			warming, from, bytes = false, at, 0
		case !warming && took >= each:
			rates = append(rates, float64(bytes)*8/took.Seconds()/p.passes)
			from, bytes = at, 0
		}
	}
	return rates, nil
}

func middle(rates []float64) float64 {
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// stream lets TCP fill the link and counts the bytes that arrive, as packets of whole size.
func (p *prober) stream(ctx context.Context) (float64, error) {
	var l net.Listener
	err := p.to.Do(func() (err error) {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(p.addr, 0).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var sender net.Conn
	err = p.from.Do(func() (err error) {
		sender, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer sender.Close()
	segment, err := prepareStream(sender.(*net.TCPConn))
	if err != nil {
		return 0, err
	}
	receiver, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer receiver.Close()
	stop := context.AfterFunc(ctx, func() { sender.Close(); receiver.Close() })
	defer stop()
	go urgently(func() {
		b := make([]byte, 256<<10)
		for {
			if _, err := sender.Write(b); err != nil {
				return
			}
		}
	})
	type result struct {
		rate float64
		err  error
	}
	done := make(chan result)
	go urgently(func() {
		// Reno doubles its window each round trip, from ten packets, until it has filled the link and its queue.
		rate, err := count(receiver, 14*p.rtt+200*time.Millisecond)
		done <- result{rate / float64(segment) * mtu, err}
	})
	r := <-done
	return r.rate, r.err
}

// count returns the bits per second that arrive after a time: the median of windows.
func count(c net.Conn, warm time.Duration) (float64, error) {
	var rates []float64
	b := make([]byte, 1<<20)
	begin := time.Now()
	from, bytes := time.Time{}, 0
	for len(rates) < windows {
		n, err := c.Read(b)
		if err != nil {
			return 0, fmt.Errorf("bulk transfer: %w", err)
		}
		now := time.Now()
		bytes += n
		switch {
		case now.Sub(begin) < warm:
		case from.IsZero():
			from, bytes = now, 0
		case now.Sub(from) >= window:
			rates = append(rates, float64(bytes)*8/now.Sub(from).Seconds())
			from, bytes = now, 0
		}
	}
	return middle(rates), nil
}

// prepareStream makes a connection use Reno: others stop before the link is full, or pace below its rate. It returns
// the payload of a packet of whole size, in bytes.
func prepareStream(c *net.TCPConn) (segment uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var err2 error
	err = raw.Control(func(fd uintptr) {
		if err2 = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno"); err2 == nil {
			info, err2 = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}
	})
	if err = errors.Join(err, err2); err != nil {
		return 0, err
	}
	return info.Snd_mss, nil
}
