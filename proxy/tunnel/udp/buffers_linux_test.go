package udp

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A socket that dials gets its larger buffers by another's help where this process may not give them.
func TestBuffersWithHelp(t *testing.T) {
	require.Root(t)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for may, want := range map[bool]int{true: 0, false: 1} {
		asked := 0
		var c *Conn
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // for good: the thread ends with its rights
			if !may {
				dropNetAdmin(t)
			}
			c, err = Dialer{Buffers: func(int) error { asked++; return nil }}.Dial(t.Context(), l.Addr().String())
		}()
		<-done
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if asked != want {
			t.Errorf("with CAP_NET_ADMIN %v: asked %d times for help, want %d", may, asked, want)
		}
	}
}

// dropNetAdmin takes CAP_NET_ADMIN from the thread.
func dropNetAdmin(t *testing.T) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Error(err)
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Error(err)
	}
}
