package app

import (
	"net"
	"testing"
	"time"
)

// sleepable returns the ends of n connections over loopback, and the Conns of the accepted ones: every second one has poll gates.
func sleepable(t *testing.T, n int) (far []*net.TCPConn, near []*Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn := Plain(a.(*net.TCPConn))
		if i%2 == 1 {
			if conn, err = Gate(a.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { c.Close(); conn.Close() })
		far, near = append(far, c.(*net.TCPConn)), append(near, conn)
	}
	return far, near
}

// readComing reads up to 64 bytes that have come.
func readComing(t *testing.T, c *Conn) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { n, err = readNow(fd, make([]byte, 64)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return n
}

// A sleeping connection is woken once, whatever ends its sleep, and its bytes are there to be read.
func TestSleep(t *testing.T) {
	far, near := sleepable(t, 12)
	var s Sleepers
	defer s.Close()
	ends := []func(i int){
		func(i int) { far[i].Write([]byte("x")) },
		func(i int) { far[i].CloseWrite() },
		func(i int) { Reset(far[i]) },
		func(i int) { near[i].Wake() },
		func(i int) { near[i].Close() },
	}
	woken := make([]chan struct{}, len(near))
	for i, c := range near {
		woken[i] = make(chan struct{}, 8)
		if !s.Sleep(c, func() { woken[i] <- struct{}{} }) {
			t.Fatal("a connection cannot sleep")
		}
	}
	time.Sleep(50 * time.Millisecond)
	for i := range near {
		if len(woken[i]) > 0 {
			t.Fatalf("connection %d is awake before anything has happened to it", i)
		}
	}
	for i := range 2 * len(ends) {
		ends[i/2](i)
	}
	for i := range near {
		select {
		case <-woken[i]:
			if i >= 2*len(ends) {
				t.Errorf("connection %d, to which nothing has happened, is awake", i)
			}
		case <-time.After(100 * time.Millisecond):
			if i < 2*len(ends) {
				t.Errorf("connection %d still sleeps after end %d", i, i/2)
			}
		}
	}
	if n := readComing(t, near[0]); n != 1 {
		t.Errorf("read %d bytes", n)
	}
	for i := range 2 * len(ends) {
		near[i].Wake()
		near[i].Close()
	}
	time.Sleep(10 * time.Millisecond)
	for i := range woken {
		if len(woken[i]) > 0 {
			t.Errorf("connection %d was woken again", i)
		}
	}
	if len(s.sleeping) != len(near)-2*len(ends) {
		t.Errorf("%d connections are kept, want the ones that sleep", len(s.sleeping))
	}
}

// Connections that are written to while they fall asleep are all woken, and can sleep again.
func TestSleepWhileBytesCome(t *testing.T) {
	far, near := sleepable(t, 4)
	var s Sleepers
	defer s.Close()
	for i := range near {
		go func() {
			for range 500 {
				far[i].Write([]byte("x"))
			}
		}()
	}
	for i, c := range near {
		for read := 0; read < 500; {
			awake := make(chan struct{})
			if !s.Sleep(c, func() { close(awake) }) {
				t.Fatal("a connection cannot sleep again")
			}
			select {
			case <-awake:
			case <-time.After(10 * time.Second):
				t.Fatalf("connection %d sleeps for ever after %d bytes", i, read)
			}
			read += readComing(t, c)
		}
	}
}

// A connection that is closed cannot sleep, and one cannot sleep after the end of the Sleepers.
func TestSleepOfTheClosed(t *testing.T) {
	_, near := sleepable(t, 4)
	var s Sleepers
	near[0].Close()
	near[1].Close()
	for _, c := range near[:2] {
		if s.Sleep(c, func() { t.Error("woken") }) {
			t.Error("a closed connection sleeps")
		}
	}
	s.Close()
	if s.Sleep(near[2], func() { t.Error("woken") }) {
		t.Error("a connection sleeps after the end")
	}
}
