package wansim

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxHeld bounds the bytes that one direction holds, whatever its Link says: 1 Gbit/s for two seconds. A packet beyond
// it is dropped.
const maxHeld = 256 << 20

// joinAbove is the rate, in bytes per second, above which one processor cannot forward packets one by one: 500 Mbit/s.
const joinAbove = 500e6 / 8

// joins reports whether TCP segments cross the link joined. Random loss is of single packets, so it needs them apart.
func joins(l Link) bool {
	fast := l.Rate == 0 || l.Rate > joinAbove
	if l.Shared != nil {
		fast = fast && l.Shared.Rate() > joinAbove
	}
	return fast && (l.Loss == 0 || l.Loss == 1)
}

// A direction forwards the packets that one TUN device sends to another.
type direction struct {
	in, out int // descriptors of the devices, which do not block
	stop    int // readable once the direction is to end
	epoch   time.Time

	queue frameQueue // of forward alone

	mu      sync.Mutex
	path    *Path
	carried Counters
	closed  bool // in and out are no longer the direction's
}

// forward runs until stop. One thread does all of a direction, since handing packets from one thread to another costs
// more than the rest: it delivers packets that are due, takes packets that have come, and sleeps in the kernel until
// either goes on.
func (d *direction) forward() error {
	runtime.LockOSThread() // for good: the thread's timer slack and priority are nobody else's
	// By default the kernel wakes a sleeper up to 50 µs late to save power (prctl(2), PR_SET_TIMERSLACK, in ns).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("wansim: timer slack: %w", err)
	}
	// A link keeps its time while the jobs at its ends keep the processors busy: with two busy loops beside it on two
	// processors, frames were 15 µs late in the median, and milliseconds without this. A lower nice value would count
	// only among the processes of one session (sched(7), autogroup). Where it is forbidden the link is less exact.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)

	fds := []unix.PollFd{{Fd: int32(d.in), Events: unix.POLLIN}, {Fd: int32(d.stop), Events: unix.POLLIN}}
	for {
		d.deliver()
		empty, err := d.take()
		if err != nil {
			return err
		}
		if err := d.wait(fds, empty); err != nil {
			return err
		}
		if fds[1].Revents != 0 {
			return nil
		}
	}
}

// deliver gives the far kernel the frames that are due.
func (d *direction) deliver() {
	now := time.Since(d.epoch)
	for {
		f, ok := d.queue.first()
		if !ok || f.at > now {
			return
		}
		if _, err := unix.Write(d.out, f.data); err != nil {
			d.mu.Lock()
			d.carried.Dropped++
			d.mu.Unlock()
		}
		d.queue.pop()
	}
}

// take reads packets of the near kernel, a few frames at most, lest packets that are due wait; empty says that there
// are no more.
func (d *direction) take() (empty bool, err error) {
	for range 16 {
		n, err := unix.Read(d.in, d.queue.space())
		if err == unix.EAGAIN {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("wansim: read packets: %w", err)
		}
		if n > vnetHeader {
			d.admit(n)
		}
	}
	return false, nil
}

// admit decides on the frame in the first n bytes of the queue's space.
func (d *direction) admit(n int) {
	packets, bytes := onWire(d.queue.space()[:n])
	now := time.Now()
	d.mu.Lock()
	at, f := time.Time{}, dropped
	if d.queue.bytes < maxHeld {
		at, f = d.path.offer(now, now, bytes)
	}
	d.carried.count(f, packets, bytes)
	d.mu.Unlock()
	if f == arrives {
		d.queue.push(at.Sub(d.epoch), n)
	}
}

// wait sleeps until the next frame is due, one comes, or the link is to end; only a look at the latter unless empty.
func (d *direction) wait(fds []unix.PollFd, empty bool) error {
	var timeout *unix.Timespec // none: without end
	f, ok := d.queue.first()
	switch {
	case !empty:
		timeout = new(unix.Timespec)
	case ok:
		t := unix.NsecToTimespec(int64(max(0, f.at-time.Since(d.epoch))))
		timeout = &t
	}
	if _, err := unix.Ppoll(fds, timeout, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("wansim: wait for packets: %w", err)
	}
	return nil
}

// set changes the link.
func (d *direction) set(l Link) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("wansim: link: %w", net.ErrClosed)
	}
	d.path.SetLink(l)
	return setSegments(d.in, joins(l))
}

// close lets go of the device that the direction reads; forward has returned.
func (d *direction) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return unix.Close(d.in)
}

func (d *direction) stats() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.carried
}
