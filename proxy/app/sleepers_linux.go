package app

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// Sleepers are connections that nobody reads until something has happened to them. All of them wait in one epoll
// instance, which one goroutine watches: a connection that sleeps has none. The zero Sleepers has no connections yet.
// Its methods are safe for concurrent use.
type Sleepers struct {
	mu       sleepersLock
	epoll    *os.File // nil: there is none yet, or Close was called
	closed   bool
	last     uint64 // key of the newest sleep
	sleeping map[uint64]*sleep
}

// A sleepersLock is a lock whose rank is rank.Sleepers.
type sleepersLock struct{ mu sync.Mutex }

func (l *sleepersLock) Lock()   { rank.Lock(&l.mu, rank.Sleepers) }
func (l *sleepersLock) Unlock() { rank.Unlock(&l.mu, rank.Sleepers) }

// A sleep is the time from Sleepers.Sleep to the wake-up of a connection.
type sleep struct {
	of    *Sleepers
	key   uint64
	conn  *Conn
	awake func()
}

// Sleep has awake called once, on a goroutine of its own, when the app has sent a byte, has ended its direction or is
// gone, or when Conn.Wake or Conn.Close is called. Nobody may read from c until then. false: the connection cannot
// sleep, and awake will not be called.
func (s *Sleepers) Sleep(c *Conn, awake func()) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.epoll == nil && s.open() != nil {
		return false
	}
	s.last++
	l := &sleep{s, s.last, c, awake}
	event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(l.key)), Pad: int32(l.key >> 32)}
	if s.control(raw, unix.EPOLL_CTL_ADD, event) != nil {
		return false
	}
	s.sleeping[l.key] = l
	wake := l.end
	c.wake.Store(&wake)
	return true
}

// Len returns how many connections sleep.
func (s *Sleepers) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sleeping)
}

// Close ends the watch. Connections that sleep are not woken by their apps any more.
func (s *Sleepers) Close() {
	s.mu.Lock()
	epoll := s.epoll
	s.closed, s.epoll = true, nil
	s.mu.Unlock()
	if epoll != nil {
		epoll.Close() // waits for watch, which may be about to take the lock
	}
}

// open makes the epoll instance, and has it watched. s.mu is held.
func (s *Sleepers) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("app: epoll instance: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os.NewFile leaves it out of Go's poller
		unix.Close(fd)
		return fmt.Errorf("app: epoll instance: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sleeping connections")
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // fails if Go's poller has not taken it
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("app: epoll instance in Go's poller: %w", err)
	}
	s.epoll, s.sleeping = f, map[uint64]*sleep{}
	go s.watch(raw)
	return nil
}

// watch wakes connections until the epoll instance is closed.
func (s *Sleepers) watch(epoll syscall.RawConn) {
	events := make([]unix.EpollEvent, 64)
	epoll.Read(func(fd uintptr) (done bool) {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if n <= 0 && err != unix.EINTR {
				return false
			}
			for _, e := range events[:max(n, 0)] {
				s.mu.Lock()
				l := s.sleeping[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
				s.mu.Unlock()
				if l != nil {
					l.end()
				}
			}
		}
	})
}

// end ends the sleep, unless it has ended already.
func (l *sleep) end() {
	s := l.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sleeping[l.key] != l {
		return
	}
	delete(s.sleeping, l.key)
	l.conn.wake.Store(nil)
	if raw, err := l.conn.SyscallConn(); err == nil && s.epoll != nil {
		_ = s.control(raw, unix.EPOLL_CTL_DEL, nil) // one that is closed is not there any more
	}
	go l.awake()
}

// control changes the epoll instance's entry for a connection. s.mu is held.
func (s *Sleepers) control(conn syscall.RawConn, op int, event *unix.EpollEvent) error {
	epoll, err := s.epoll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		err := epoll.Control(func(ep uintptr) { failed = unix.EpollCtl(int(ep), op, int(fd), event) })
		if err != nil {
			failed = err
		}
	})
	if err != nil {
		return err
	}
	return failed
}
