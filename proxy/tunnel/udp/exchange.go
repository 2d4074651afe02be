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

// exchange asks for a cookie, and sends the message that request makes of it until done says that a message answers
// that.
func (s *socket) exchange(ctx context.Context, n nonce, request func(cookie []byte) (message, error), done func(answer *message) bool) error {
	stop := context.AfterFunc(ctx, func() { s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	m := message{kind: msgAsk, nonce: n, cookie: make([]byte, cookieLen)}
	wait := askEvery
	b := make([]byte, maxDatagram)
	for {
		if _, err := s.Write(m.append(nil)); err != nil {
			return err
		}
		s.SetReadDeadline(time.Now().Add(wait))
		for {
			if ctx.Err() != nil {
				return fmt.Errorf("no answer: %w", context.Cause(ctx))
			}
			n, err := s.UDPConn.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				wait = wait * 3 / 2
				break
			}
			if err != nil {
				return err
			}
			answer, ok := parseMessage(b[:n])
			switch {
			case !ok || answer.nonce != m.nonce:
			case answer.kind == msgCookie && m.kind == msgAsk:
				if m, err = request(append([]byte(nil), answer.cookie...)); err != nil {
					return err
				}
				wait = askEvery
				if _, err := s.Write(m.append(nil)); err != nil {
					return err
				}
				s.SetReadDeadline(time.Now().Add(wait))
			case m.kind != msgAsk && done(&answer):
				if !stop() { // it may yet set the deadline
					return fmt.Errorf("no answer: %w", context.Cause(ctx))
				}
				return s.SetReadDeadline(time.Time{})
			}
		}
	}
}
