package proxy

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// Bytes that an app sends as urgent arrive with the others, in their place.
func TestUrgentBytesArrive(t *testing.T) {
	p := newPair(t, nil)
	c, s := p.connect(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("before"))
	raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("U"), unix.MSG_OOB, nil) })
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("after"))
	c.CloseWrite()
	if got, err := io.ReadAll(s); err != nil || string(got) != "beforeUafter" {
		t.Errorf("%q arrived, %v", got, err)
	}
}
