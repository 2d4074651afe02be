package intercept

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// A site is a network namespace of a test's own.
type site struct {
	*netns.Namespace
	t *testing.T
}

func newSite(t *testing.T) *site { return &site{netns.New(t), t} }

// connect joins two sites by a veth pair named link at both ends, with these addresses.
func connect(a, b *site, link string, addrsA, addrsB []string) {
	netns.Connect(a.Namespace, b.Namespace, link, addrsA, addrsB)
}

// answer listens on addr inside the site and answers each connection with its own word, then echoes.
func (s *site) answer(addr, word string) {
	s.t.Helper()
	s.Do(func() {
		l, err := listen("tcp", netip.MustParseAddrPort(addr), nil)
		if err != nil {
			s.t.Error(err)
			return
		}
		s.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.AcceptTCP()
				if err != nil {
					return
				}
				go say(c, word)
			}
		}()
	})
}

// say writes a word of one byte, then echoes until the connection ends.
func say(c *net.TCPConn, word string) {
	defer c.Close()
	if _, err := io.WriteString(c, word); err == nil {
		_, _ = io.Copy(c, c)
	}
}

// dial connects from inside the site.
func (s *site) dial(addr string) (c net.Conn, err error) {
	s.Do(func() { c, err = net.Dial("tcp", addr) })
	if err == nil {
		s.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// whoAnswers dials and returns the word of the program that accepted, "refused", or the error.
func (s *site) whoAnswers(addr string) string {
	c, err := s.dial(addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		return err.Error()
	}
	defer c.Close()
	return readWord(c)
}

func readWord(c net.Conn) string {
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		return err.Error()
	}
	return string(b)
}

// echoes fails the test unless the connection still carries bytes both ways.
func echoes(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if got := readWord(c); got != "x" {
		t.Errorf("%s: read %q, want the echo", what, got)
	}
}

// openConn returns a connection to the site's nf_tables.
func openConn(s *site) (conn *nftables.Conn) {
	s.Do(func() {
		var err error
		conn, err = nftables.New(nftables.AsLasting())
		s.Check(err)
	})
	s.t.Cleanup(func() { conn.CloseLasting() })
	return conn
}

// dropCapability takes one capability from the thread.
func dropCapability(which uint) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		return err
	}
	d := &data[which/32]
	d.Effective &^= 1 << (which % 32)
	d.Permitted &^= 1 << (which % 32)
	d.Inheritable &^= 1 << (which % 32)
	return unix.Capset(&h, &data[0])
}

// inKernel returns the rules of a Redirect that has no other Enforcer.
func inKernel(r *Redirect) *rules { return r.rules.(*Rules).rules }
