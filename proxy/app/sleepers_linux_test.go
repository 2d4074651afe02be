package app

import (
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// sleepable returns the ends of n connections over loopback, and the Conns of the accepted ones: every second one has
// poll gates.
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
	before := runtime.NumGoroutine()
	var s Sleepers
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
	s.mu.Lock()
	all := maps.Clone(s.sleeping)
	s.mu.Unlock()
	for i := range 2 * len(ends) {
		ends[i/2](i)
		<-woken[i]
	}
	if n := readComing(t, near[0]); n != 1 {
		t.Errorf("read %d bytes", n)
	}
	for i := range 2 * len(ends) {
		near[i].Wake()
		near[i].Close()
	}
	for _, l := range all {
		if i := slices.Index(near, l.conn); i < 2*len(ends) {
			l.end() // as the watch may, of an event that came at the same time
		}
	}
	if n := s.Len(); n != len(near)-2*len(ends) {
		t.Errorf("%d connections sleep, want the %d to which nothing has happened", n, len(near)-2*len(ends))
	}
	s.Close()
	for runtime.NumGoroutine() > before { // until all calls have begun and ended
		time.Sleep(time.Millisecond)
	}
	for i := range woken {
		if len(woken[i]) > 0 {
			t.Errorf("connection %d was woken once too often", i)
		}
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
			case <-time.After(time.Minute):
				t.Fatalf("connection %d sleeps for ever after %d bytes", i, read)
			}
			read += readComing(t, c)
		}
	}
}

// Close returns also while apps wake connections: the goroutine that it waits for may be about to take the lock.
func TestCloseWhileBytesCome(t *testing.T) {
	const n = 64
	far, near := sleepable(t, n)
	for range 50 {
		var s Sleepers
		for _, c := range near {
			if !s.Sleep(c, func() {}) {
				t.Fatal("a connection cannot sleep")
			}
		}
		var writers sync.WaitGroup
		for _, c := range far {
			writers.Go(func() { c.Write([]byte("x")) })
		}
		s.Close()
		writers.Wait()
		for _, c := range near {
			c.Wake() // the ones that the app has not woken
			readComing(t, c)
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
