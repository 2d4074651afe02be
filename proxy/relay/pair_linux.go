package relay

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A pair is two connections whose bytes are passed on. It is its loop's.
type pair struct {
	fd     [2]int
	dir    [2]direction // from fd[0] to fd[1], and back
	can    [2]ability   // known abilities of fd[0] and fd[1]
	sent   [2]int64
	reset  bool
	closed bool
	waits  bool        // it is in the loop's again
	moved  func(n int) // is called with bytes that were passed on
	ended  func(Ending)
}

// A direction is the way from one connection to the other.
type direction struct {
	pipe *pipe  // nil: none is needed
	held int    // bytes in it
	rest []byte // bytes that were read and are to be sent; nil: none, and never while bytes are in the pipe
	bulk bool   // much comes at a time
	thin int8   // little came, so many times
	fin  bool   // the end has come, and once nothing is under way it has been passed on
	done bool   // it has been
}

// An ability is an operation that a connection can do, as far as is known: until a call has answered EAGAIN it is worth
// a try.
//
// A read ends before a byte that was sent as urgent, though more may wait behind it, and splice answers there as at the
// end.
type ability struct{ read, write, hung, urgent bool }

const (
	quantum = 4 << 20 // bytes that a direction may move before it is another's turn
	maxThin = 16      // times that little comes before it is no bulk any more
)

// happened takes note of an event.
func (p *pair) happened(fd int, events uint32) {
	i := 0
	if fd == p.fd[1] {
		i = 1
	}
	c := &p.can[i]
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.read = true
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.write = true
	}
	c.hung = c.hung || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	c.urgent = c.urgent || events&unix.EPOLLPRI != 0
	if events&unix.EPOLLERR != 0 && p.dir[i].fin { // nobody will read from it and come across the error
		if e, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
			p.reset = true
		}
	}
}

// over reports whether there is nothing left to do.
func (p *pair) over() bool { return p.reset || p.dir[0].done && p.dir[1].done }

// move moves as many bytes as it can, both ways, and reports whether there may be more at once.
func (p *pair) move(l *pool) (more bool) {
	for i := range p.dir {
		if p.over() {
			return false
		}
		if p.moveDirection(l, i) {
			more = true
		}
	}
	return more
}

// moveDirection moves bytes one way, at most a quantum.
func (p *pair) moveDirection(l *pool, i int) (more bool) {
	d := &p.dir[i]
	for moved := 0; moved < quantum; {
		n, ok := p.step(l, i)
		moved += n
		if !ok {
			p.finish(l, i)
			return false
		}
	}
	return !d.done
}

// finish passes the end on, and gives the pipe back once it is empty.
func (p *pair) finish(l *pool, i int) {
	d := &p.dir[i]
	if d.held > 0 || d.rest != nil || p.reset {
		return
	}
	if d.pipe != nil {
		l.back(d.pipe)
		d.pipe = nil
	}
	if d.fin && !d.done {
		d.done = true
		unix.Shutdown(p.fd[1-i], unix.SHUT_WR) // one that is reset already will say so
	}
}

// step does one thing; false: it has to wait, or there is nothing left.
func (p *pair) step(l *pool, i int) (moved int, ok bool) {
	d := &p.dir[i]
	switch {
	case d.rest != nil:
		return p.flush(i)
	case d.held > 0:
		return p.empty(i)
	case d.fin || !p.can[i].read || !p.can[1-i].write:
		return 0, false
	}
	if d.bulk && d.pipe == nil {
		d.pipe = l.lend()
	}
	if d.bulk && d.pipe != nil {
		return 0, p.fill(i)
	}
	return p.copy(l, i)
}

// fill moves bytes into the pipe, which is empty.
func (p *pair) fill(i int) (ok bool) {
	d := &p.dir[i]
	n, e := splice(p.fd[i], d.pipe.w, wideSize)
	switch {
	case e == 0 && n > 0:
		d.held = n
		if d.thin++; n >= bufSize/2 {
			d.thin = 0
		}
		d.bulk = d.thin < maxThin
		return true
	case e == 0: // the end, or an urgent byte: a read tells
		d.bulk = false
		return true
	case e == unix.EAGAIN:
		p.can[i].read = false
	case e != unix.EINTR:
		p.reset = true
	}
	return e == unix.EINTR
}

// empty moves bytes out of the pipe.
func (p *pair) empty(i int) (moved int, ok bool) {
	d := &p.dir[i]
	if !p.can[1-i].write {
		return 0, false
	}
	n, e := splice(d.pipe.r, p.fd[1-i], d.held)
	switch {
	case e == 0 && n > 0:
		d.held -= n
		p.count(i, n)
		return n, true
	case e == unix.EAGAIN:
		p.can[1-i].write = false
	case e != unix.EINTR:
		p.reset = true
	}
	return 0, e == unix.EINTR
}

// copy reads and writes. Bytes that the other connection does not take are kept, bufSize at most.
func (p *pair) copy(l *pool, i int) (moved int, ok bool) {
	d := &p.dir[i]
	n, e := call(unix.SYS_READ, p.fd[i], l.buf)
	switch {
	case e == unix.EAGAIN:
		p.can[i].read = false
		return 0, false
	case e == unix.EINTR:
		return 0, true
	case e != 0:
		p.reset = true
		return 0, false
	case n == 0:
		d.fin = true
		return 0, false
	}
	d.bulk, d.thin = n == len(l.buf), 0
	if c := &p.can[i]; n < len(l.buf) && !c.hung && !c.urgent {
		c.read = false // it would say so; an end would be an event of its own
	}
	m := p.write(i, l.buf[:n])
	if m < n && !p.reset {
		d.rest = slices.Clone(l.buf[m:n])
	}
	return m, !p.reset
}

// flush sends the bytes that copy has kept.
func (p *pair) flush(i int) (moved int, ok bool) {
	d := &p.dir[i]
	if !p.can[1-i].write {
		return 0, false
	}
	m := p.write(i, d.rest)
	if d.rest = d.rest[m:]; len(d.rest) == 0 {
		d.rest = nil
	}
	return m, !p.reset
}

// write sends as much of b as the other connection takes, and takes note where that is not all.
func (p *pair) write(i int, b []byte) (n int) {
	n, e := send(p.fd[1-i], b)
	if e != 0 && e != unix.EAGAIN && e != unix.EINTR {
		p.reset = true
		return 0
	}
	n = max(n, 0)
	p.count(i, n)
	if n < len(b) {
		p.can[1-i].write = e == unix.EINTR
	}
	return n
}

func (p *pair) count(i, n int) {
	p.sent[i] += int64(n)
	p.moved(n)
}

// The calls below do not wait, so the scheduler is not told of them: it would have another thread go on in the stead of
// one that moves much.

func call(number uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), unix.Errno(e)
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

func splice(from, to, n int) (int, unix.Errno) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	moved, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), flags)
	return int(moved), e
}
