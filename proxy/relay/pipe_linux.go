package relay

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	bufSize  = 64 << 10  // bytes that are read at once until more seem to come
	pipeSize = 256 << 10 // bytes of a pipe, if the kernel allows as much
	wideSize = 1 << 20   // bytes of the first few: one that moves much saves calls, and wakes fewer threads
	wide     = 16        // pipes of that size: a user without privileges gets small ones beyond 64 MiB in all (pipe(7))
	maxSpare = 16        // empty pipes that a thread keeps
	refusals = 256       // times that a thread does without a pipe before it asks the kernel again, which had none
)

// A pipe is one that bytes are spliced through.
type pipe struct{ r, w int }

// newPipe returns a pipe of size bytes, or of as many as the kernel allows. It returns nil if there are no more
// descriptors, or only pipes that are smaller than the buffer that copying moves at once: a user without privileges
// gets one page or two once all his pipes have more than fs.pipe-user-pages-soft (pipe(7)).
func newPipe(size int) *pipe {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	p := &pipe{fds[0], fds[1]}
	got, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, size)
	if err != nil {
		got, err = unix.FcntlInt(uintptr(p.w), unix.F_GETPIPE_SZ, 0)
	}
	if err != nil || got < bufSize {
		p.close()
		return nil
	}
	return p
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// A pool holds the buffer and the empty pipes with which a thread moves bytes.
type pool struct {
	buf   []byte
	pipes []*pipe       // that nobody uses
	scant int           // so many more times there is no pipe to be had
	all   *atomic.Int64 // pipes that there are, of all threads
	limit int64         // of all
}

// lend returns an empty pipe, or nil if there is none to be had: then bytes are copied.
func (l *pool) lend() *pipe {
	if n := len(l.pipes); n > 0 {
		p := l.pipes[n-1]
		l.pipes = l.pipes[:n-1]
		return p
	}
	if l.scant > 0 {
		l.scant--
		return nil
	}
	if n := l.all.Add(1); n <= l.limit {
		size := pipeSize
		if n <= wide {
			size = wideSize
		}
		if p := newPipe(size); p != nil {
			return p
		}
	}
	l.all.Add(-1)
	l.scant = refusals
	return nil
}

// drop closes a pipe that lend has returned.
func (l *pool) drop(p *pipe) {
	p.close()
	l.all.Add(-1)
}

// back takes back an empty pipe.
func (l *pool) back(p *pipe) {
	if len(l.pipes) < maxSpare {
		l.pipes = append(l.pipes, p)
		return
	}
	l.drop(p)
}
