package relay

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop is a thread that waits for connections and moves their bytes. Fields that mu does not guard are the thread's.
type loop struct {
	pool
	left  func(*pair) // is called with a pair that has ended
	epoll int
	wake  int     // an eventfd
	again []*pair // that have used up their turn

	mu      loopLock
	byFD    map[int32]*pair
	aborted []*pair
	stopped bool
}

func newLoop(p pool, left func(*pair)) (*loop, error) {
	l := &loop{pool: p, left: left, byFD: map[int32]*pair{}}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.wake)})
	}
	if err != nil {
		unix.Close(l.epoll)
		return nil, err
	}
	return l, nil
}

// add has the thread take care of a pair. Both connections are reported once for each new state (EPOLLET), so that
// nothing is told to the kernel again until they are closed. The lock keeps the thread from doing so, at the state of
// the first one, before it is told of the second: that number may be another connection's by then.
func (l *loop) add(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byFD[int32(p.fd[0])], l.byFD[int32(p.fd[1])] = p, p
	for _, fd := range p.fd {
		const events = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff
		if unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}) != nil {
			l.doom(p)
			return
		}
	}
}

// abort resets a pair, soon.
func (l *loop) abort(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doom(p)
}

// doom is abort. mu is held.
func (l *loop) doom(p *pair) {
	l.aborted = append(l.aborted, p)
	l.rouse()
}

// stop ends the thread, which has no pairs any more.
func (l *loop) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.rouse()
}

func (l *loop) rouse() {
	one := uint64(1)
	unix.Write(l.wake, (*[8]byte)(unsafe.Pointer(&one))[:])
}

// run is the thread.
func (l *loop) run() {
	events := make([]unix.EpollEvent, 128)
	for {
		wait := -1
		if len(l.again) > 0 {
			wait = 0
		}
		n, err := unix.EpollWait(l.epoll, events, wait)
		if err != nil && err != unix.EINTR {
			panic("relay: epoll_wait: " + err.Error()) // the descriptor is ours
		}
		again := l.again
		l.again = nil
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(l.wake) {
				if l.woken() {
					return
				}
				continue
			}
			l.mu.Lock()
			p := l.byFD[e.Fd]
			l.mu.Unlock()
			if p != nil { // else it was closed a moment ago
				p.happened(int(e.Fd), e.Events)
				l.advance(p)
			}
		}
		for _, p := range again {
			p.waits = false
			l.advance(p)
		}
	}
}

// advance moves the bytes that a pair can move for now, and closes it once all is done.
func (l *loop) advance(p *pair) {
	switch more := p.move(&l.pool); {
	case p.over():
		l.close(p)
	case more && !p.waits:
		p.waits = true
		l.again = append(l.again, p)
	}
}

// woken does the work that others ask of the thread, and reports whether it is to end.
func (l *loop) woken() (stop bool) {
	var b [8]byte
	unix.Read(l.wake, b[:])
	l.mu.Lock()
	aborted := l.aborted
	l.aborted, stop = nil, l.stopped
	l.mu.Unlock()
	for _, p := range aborted {
		p.reset = true
		l.close(p)
	}
	if stop {
		for _, p := range l.pipes {
			l.drop(p)
		}
		unix.Close(l.epoll)
		unix.Close(l.wake)
	}
	return stop
}

// close closes a pair's connections.
func (l *loop) close(p *pair) {
	if p.closed {
		return
	}
	p.closed = true
	l.mu.Lock()
	for _, fd := range p.fd {
		delete(l.byFD, int32(fd))
	}
	l.mu.Unlock()
	for i := range p.dir {
		if d := &p.dir[i]; d.pipe != nil {
			l.drop(d.pipe) // bytes may be in it
			d.pipe = nil
		}
	}
	for _, fd := range p.fd {
		if !p.reset {
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
		unix.Close(fd)
	}
	l.left(p)
}
