package wansim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Sizes of a stream's packets: TCP over IPv4 without options on a path of MTU 1500.
const (
	segmentHeader = 40 // bytes of IPv4 and TCP headers, without options
	segmentSize   = mtu - segmentHeader
)

// A stream is one direction of a Conn: the bytes written at one end and not yet read at the other.
type stream struct {
	line *line
	back *stream // the other direction of the same connection

	writing sync.Mutex // held for a whole Write, so that concurrent ones do not mix

	mu      sync.Mutex
	changed sync.Cond // of anything below
	bytes   ring      // written and not yet read
	arrived int       // how many of bytes can be read
	last    time.Time // when the packet before arrives, in the line's time

	writeBy  deadline
	readBy   deadline
	writeErr error // why nothing more can be written
	readErr  error // why nothing more can be read, once arrived is 0
	refused  bool  // the reading end is closed: bytes that arrive are answered by a reset
	opened   bool  // a packet that opens the connection has arrived
	sentRST  bool
	onReset  func()
}

// newStreams returns both directions of a connection.
func newStreams(ab, ba *line) (a, b *stream) {
	a, b = &stream{line: ab}, &stream{line: ba}
	a.back, b.back = b, a
	a.changed.L, b.changed.L = &a.mu, &b.mu
	return a, b
}

// write sends b and blocks while the bottleneck's queue or the window is full.
func (s *stream) write(b []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := s.line.now()
	for {
		if s.writeErr != nil {
			return n, s.writeErr
		}
		if s.writeBy.passed() {
			return n, os.ErrDeadlineExceeded
		}
		if n == len(b) {
			return n, nil
		}
		sent, wait := s.send(ready, b[n:])
		n += sent
		if wait == forReader {
			s.changed.Wait()
			ready = s.line.now()
		} else if wait > 0 {
			t := time.AfterFunc(wait, s.wake)
			s.changed.Wait()
			t.Stop()
		}
	}
}

// forReader is how long send has to wait when only the reading end can make room.
const forReader time.Duration = -1

// send puts the first packets of b on the line, or returns how long there is no room for the next. s.mu is held.
func (s *stream) send(ready time.Time, b []byte) (n int, wait time.Duration) {
	x := s.line
	x.mu.Lock()
	defer x.mu.Unlock()
	if room := x.window - s.bytes.n; room < len(b) { // then full packets only, as TCP does (RFC 9293, 3.8.6.2.1)
		b = b[:max(0, room/segmentSize*segmentSize)]
	}
	if len(b) == 0 {
		return 0, forReader
	}
	now := x.clock()
	b = b[:min(len(b), burstOf(x.path.link.Rate))]
	var at time.Time
	for n < len(b) {
		size := min(len(b)-n, segmentSize)
		if x.path.queue.full(now, size+segmentHeader) {
			break
		}
		at = s.transmit(ready, size+segmentHeader)
		n += size
	}
	if n == 0 {
		return 0, max(0, time.Until(x.real(x.path.queue.room(min(len(b), segmentSize)+segmentHeader))))
	}
	s.bytes.write(b[:n])
	arrived := n
	x.arrive(at, func() { s.deliver(arrived) })
	return n, 0
}

// burstOf returns how many bytes may arrive as one: the full packets that the bottleneck sends in 100 µs, at least one
// and less than 64 KiB.
func burstOf(rate int64) int {
	const limit = 64 << 10 / segmentSize
	if rate == 0 {
		return limit * segmentSize
	}
	return int(min(limit, max(1, rate/10_000/mtu))) * segmentSize
}

// transmit puts a packet on the line and returns when it arrives: one round trip later for each time that it is lost
// and sent anew, and not before the packets in front of it. s.mu and the line's mu are held.
func (s *stream) transmit(ready time.Time, size int) time.Time {
	var late time.Duration
	for {
		at, f := s.line.path.send(ready, size)
		s.line.carried.count(f, 1, size)
		if f == lost {
			late += s.line.rtt
			continue
		}
		if at = at.Add(late); at.After(s.last) {
			s.last = at
		}
		return s.last
	}
}

// control sends a packet without payload, which waits for no room.
func (s *stream) control(deliver func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.line
	x.mu.Lock()
	defer x.mu.Unlock()
	x.arrive(s.transmit(x.clock(), segmentHeader), deliver)
}

// open sends the packet that opens the connection.
func (s *stream) open() {
	s.control(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened = true
		s.changed.Broadcast()
	})
}

// awaitOpen waits for that packet at the reading end; false says that a reset came instead.
func (s *stream) awaitOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.opened && s.readErr == nil {
		s.changed.Wait()
	}
	return s.opened
}

// deliver makes the next n bytes readable.
func (s *stream) deliver(n int) {
	s.mu.Lock()
	refused := s.refused
	if s.readErr == nil {
		s.arrived += n
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	if refused {
		s.back.reset()
	}
}

// read reads bytes that have arrived.
func (s *stream) read(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.refused {
			return 0, net.ErrClosed
		}
		if s.readBy.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		if n := min(len(b), s.arrived); n > 0 {
			s.bytes.read(b[:n])
			s.arrived -= n
			s.changed.Broadcast()
			return n, nil
		}
		if len(b) == 0 {
			return 0, nil
		}
		if s.readErr != nil {
			return 0, s.readErr
		}
		s.changed.Wait()
	}
}

// finish ends the stream with a FIN, once; err is the error of later writes.
func (s *stream) finish(err error) {
	if s.fail(err) {
		s.control(func() { s.end(io.EOF) })
	}
}

// reset ends the connection with an RST, in both directions: here at once, at the far end when it arrives.
func (s *stream) reset() {
	s.back.end(syscall.ECONNRESET)
	s.fail(syscall.ECONNRESET)
	s.mu.Lock()
	again := s.sentRST
	s.sentRST = true
	s.mu.Unlock()
	if !again {
		s.control(s.abort)
	}
}

// abort ends the connection at the reading end.
func (s *stream) abort() {
	s.end(syscall.ECONNRESET)
	s.back.fail(syscall.ECONNRESET)
}

// fail makes writes return err unless they already fail; it reports whether they did not.
func (s *stream) fail(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return false
	}
	s.writeErr = err
	s.changed.Broadcast()
	return true
}

// end makes reads return err: io.EOF behind the bytes that have arrived, a reset instead of them.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == io.EOF {
		if s.readErr == nil {
			s.readErr = err
		}
	} else if s.readErr != err {
		s.readErr, s.arrived = err, 0
		if s.onReset != nil {
			go s.onReset()
		}
	}
	s.changed.Broadcast()
}

// watch calls f, on a goroutine of its own, once the connection has been reset.
func (s *stream) watch(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onReset = f
	if s.readErr == syscall.ECONNRESET {
		go f()
	}
}

// refuse closes the reading end, and reports whether bytes are lost by that.
func (s *stream) refuse() (unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread = s.arrived > 0
	s.refused = true
	s.changed.Broadcast()
	return unread
}

// close makes writes fail with net.ErrClosed, whatever ended them before.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeErr = net.ErrClosed
	s.changed.Broadcast()
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.set(t, s.wake)
	s.changed.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}
