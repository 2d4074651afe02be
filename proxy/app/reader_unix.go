//go:build unix

package app

import (
	"io"
	"syscall"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Reader reads from the app's connection. It takes memory only when there are bytes, so that an idle connection
// costs none. It is not safe for concurrent use.
type Reader struct {
	conn   *Conn
	raw    syscall.RawConn
	memory *memory.Allocator
	low    int // low water: bytes that must have come for the kernel to wake the poller; 0: one
	idle   func()
	plain  *plainReader // of a connection without a descriptor; nil: there is one
}

// NewReader returns a Reader that calls idle, if that is not nil, before it waits for bytes. Of a connection inside the
// process it does not.
func NewReader(c *Conn, m *memory.Allocator, idle func()) (*Reader, error) {
	if s, ok := c.socket.(inProcess); ok {
		return &Reader{plain: &plainReader{s, m}}, nil
	}
	raw, err := c.SyscallConn()
	return &Reader{conn: c, raw: raw, memory: m, idle: idle}, err
}

// TellsIdle reports whether idle is called before Read waits.
func (r *Reader) TellsIdle() bool { return r != nil && r.idle != nil }

// Read waits for bytes and returns how many came, and a buffer that the caller owns. Without Request.Into the bytes
// follow the room in the buffer, whose length is up to their end; with it they are in Into. io.EOF is the app's FIN.
func (r *Reader) Read(q Request) (n int, buf memory.Buffer, err error) {
	if r.plain != nil {
		return r.plain.Read(q)
	}
	var readErr error
	err = r.raw.Read(func(fd uintptr) bool {
		buf = r.memory.Get(q.Size)
		dst := buf.B[q.Room:]
		if q.Into != nil {
			dst = q.Into[:min(len(q.Into), len(dst))]
		}
		var e error
		n, e = ignoringEINTR(func() (int, error) { return readNow(fd, dst) })
		if e == nil && n > 0 {
			buf.B = buf.B[:q.Room+n]
			if q.Ahead > 0 && !r.conn.disarm() {
				r.setLowWater(fd, q.Ahead)
			}
			return true
		}
		r.memory.Put(buf)
		buf = memory.Buffer{}
		switch e {
		case nil:
			readErr = io.EOF
		case syscall.EAGAIN:
			if r.idle != nil {
				r.idle()
			}
			r.setLowWater(fd, q.Min)
			return false
		default:
			readErr = e
		}
		return true
	})
	if err == nil {
		err = readErr
	}
	return n, buf, err
}

// ReadNow is Read of bytes that have come: it neither waits nor heeds the read deadline. It returns none where there
// are none, at the end of the app's bytes, which Read tells, and where the budget has no memory.
func (r *Reader) ReadNow(q Request) (n int, buf memory.Buffer) {
	if r.plain != nil {
		return 0, memory.Buffer{}
	}
	if buf = r.memory.Get(q.Size); buf.Cost > 0 {
		// An error shows again at the next Read: a connection that was reset stays so.
		_ = r.raw.Control(func(fd uintptr) {
			n, _ = ignoringEINTR(func() (int, error) { return readNow(fd, buf.B[q.Room:]) })
		})
	}
	if n <= 0 {
		r.memory.Put(buf)
		return 0, memory.Buffer{}
	}
	buf.B = buf.B[:q.Room+n]
	return n, buf
}

// setLowWater has the kernel report bytes only once n have come: to a Read that waits, or, while none does, to Go's
// poller, which each packet would wake for nothing. The receive buffer grows to hold as many, within the host's
// tcp_rmem.
func (r *Reader) setLowWater(fd uintptr, n int) {
	if n = max(n, 1); n != max(r.low, 1) && setLowWater(fd, n) == nil {
		r.low = n
	}
}

// Narrow has the kernel hold few bytes that nobody has read yet, if want is set and nobody has read any. It returns
// whether it holds few, perhaps since an earlier call, of another process too.
func (r *Reader) Narrow(want bool) (narrow bool) {
	if r.plain == nil {
		_ = r.raw.Control(func(fd uintptr) { narrow = setNarrow(fd, want) })
	}
	return narrow
}

// Widen undoes Narrow: the kernel holds as many bytes as it likes, within the host's tcp_rmem.
func (r *Reader) Widen() {
	if r.plain == nil {
		_ = r.raw.Control(setWide)
	}
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
