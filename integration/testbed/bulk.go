//go:build linux

package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Stream is a TCP connection from the first site of a WAN to the second one. Its bytes are random, so that nothing
// makes fewer of them. It ends with Close.
type Stream struct {
	near, far net.Conn
}

// BesideProxies is a port whose connections the proxies leave alone.
const BesideProxies = 900

// Connect makes a Stream to a port, 0: any that the proxies take over, under a congestion control of the kernel's, "":
// its default.
func Connect(ctx context.Context, w *WAN, port uint16, congestion string) (s *Stream, err error) {
	from, to := w.Sites[0], w.Sites[1]
	l, err := to.Listen(netip.AddrPortFrom(to.Addr, port).String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := from.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	if err := setCongestion(near.(*net.TCPConn), congestion); err != nil {
		near.Close()
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		near.Close()
		return nil, err
	}
	near.(*net.TCPConn).SetLinger(0) // bytes that are under way at the end are dropped
	return &Stream{near, far}, nil
}

// Close resets the connection.
func (s *Stream) Close() { s.near.Close(); s.far.Close() }

// Fill writes all that the connection takes, until it is closed.
func (s *Stream) Fill() {
	go func() {
		chunk := make([]byte, 256<<10)
		rand.Read(chunk)
		for {
			if _, err := s.near.Write(chunk); err != nil {
				return // closed
			}
		}
	}()
}

// Receive reads for a time and returns how many bytes have arrived, in Mbit/s.
func (s *Stream) Receive(d time.Duration) (mbps float64, err error) {
	s.far.SetReadDeadline(time.Now().Add(d))
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, s.far, make([]byte, 256<<10))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("testbed: the connection ended early: %w", err)
	}
	return float64(n) * 8 / d.Seconds() / 1e6, nil
}

// RoundTrips sends a byte there and back, again and again for a time, and returns how long each round trip has taken,
// the shortest first.
func (s *Stream) RoundTrips(d time.Duration) (taken []time.Duration, err error) {
	end := time.Now().Add(d)
	echo := make(chan error, 1)
	go func() {
		_, err := io.Copy(s.far, s.far)
		echo <- err
	}()
	b := make([]byte, 1)
	for time.Now().Before(end) {
		begin := time.Now()
		if _, err := s.near.Write(b); err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		if _, err := io.ReadFull(s.near, b); err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		taken = append(taken, time.Since(begin))
		time.Sleep(10 * time.Millisecond)
	}
	s.Close()
	<-echo
	slices.Sort(taken)
	return taken, nil
}

// Steps sends a burst there and, when it has come whole, one back, again and again for a time, and returns how long
// each has taken together, the shortest first.
func (s *Stream) Steps(burst int, d time.Duration) (taken []time.Duration, err error) {
	end := time.Now().Add(d)
	there, back := make([]byte, burst), make([]byte, burst)
	rand.Read(there)
	go func() {
		for {
			if _, err := io.ReadFull(s.far, back); err != nil {
				return // closed
			}
			if _, err := s.far.Write(back); err != nil {
				return
			}
		}
	}()
	for time.Now().Before(end) {
		begin := time.Now()
		if _, err := s.near.Write(there); err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		if _, err := io.ReadFull(s.near, make([]byte, burst)); err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		taken = append(taken, time.Since(begin))
	}
	s.Close()
	slices.Sort(taken)
	return taken, nil
}

func setCongestion(c *net.TCPConn, name string) error {
	if name == "" {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if controlled := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}); controlled != nil {
		return controlled
	}
	if err != nil {
		return fmt.Errorf("testbed: this kernel has no congestion control %s (modprobe tcp_%[1]s): %w", name, err)
	}
	return nil
}
