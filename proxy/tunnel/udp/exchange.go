package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

const askEvery = 250 * time.Millisecond // at first; each further question waits 1.5 times as long

// connected returns a socket that is connected to address. buffers is as of Dialer.
func connected(ctx context.Context, address string, buffers func(fd int) error) (s *socket, remote netip.AddrPort, err error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, remote, err
	}
	u := raw.(*net.UDPConn)
	return newSocket(u, buffers), u.RemoteAddr().(*net.UDPAddr).AddrPort(), nil
}

// ask sends the datagrams that question returns, one after the other, until done says that a datagram answers them. The
// kernel may have joined several datagrams that came.
func (s *socket) ask(ctx context.Context, question func() ([]byte, error), done func(answer []byte) (bool, error)) error {
	stop := context.AfterFunc(ctx, func() { s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, oob := make([]byte, maxDatagram), make([]byte, oobBuffer)
	for wait := askEvery; ; wait = wait * 3 / 2 {
		d, err := question()
		if err != nil {
			return err
		}
		if _, err := s.Write(d); err != nil {
			return err
		}
		s.SetReadDeadline(time.Now().Add(wait))
		for {
			if ctx.Err() != nil {
				return fmt.Errorf("no answer: %w", context.Cause(ctx))
			}
			n, controls, _, _, err := s.ReadMsgUDPAddrPort(b, oob)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			answered, err := newArrived(b[:n], oob[:controls]).some(done)
			if err != nil {
				return err
			}
			if answered {
				if !stop() { // it may yet set the deadline
					return fmt.Errorf("no answer: %w", context.Cause(ctx))
				}
				return s.SetReadDeadline(time.Time{})
			}
		}
	}
}

// exchange begins a connection, and returns the id that the listener gives it.
func (s *socket) exchange(ctx context.Context, n nonce) (id connectionID, err error) {
	m := message{kind: msgAsk, nonce: n, cookie: make([]byte, cookieLen)}
	for _, want := range []byte{msgCookie, msgWelcome} {
		err = s.ask(ctx, func() ([]byte, error) { return m.append(nil), nil }, func(d []byte) (bool, error) {
			answer, ok := parseMessage(d)
			if !ok || answer.nonce != n || answer.kind != want {
				return false, nil
			}
			switch want {
			case msgCookie:
				m = message{kind: msgBegin, nonce: n, cookie: append([]byte(nil), answer.cookie...)}
			case msgWelcome:
				id = connectionID(answer.id)
			}
			return true, nil
		})
		if err != nil {
			break
		}
	}
	return id, err
}
