package tunnel

import (
	"fmt"
	"io"
)

// Read returns io.EOF after the peer's CloseWrite, a *ResetError after a reset and an error that wraps
// ErrSessionLost after the session's end; the bytes that came before are delivered first.
func (st *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.readable(); err != nil {
		return 0, err
	}
	ch := st.first
	b := ch.bytes()
	n := min(len(p), len(b))
	if n <= batchSize {
		copy(p, b[:n])
	} else {
		ch.users++
		s.mu.Unlock()
		copy(p, b[:n])
		s.mu.Lock()
		s.mem.unuse(ch)
		if st.first != ch { // reset meanwhile
			return n, nil
		}
	}
	if ch.from += n; ch.from == ch.n {
		st.shift()
		s.mem.put(ch)
	}
	s.consumed(st.stream, n)
	return n, nil
}

// ReadChunk is Read without the copy: it waits for bytes and returns them, up to 256 KiB. The slice is valid,
// and may be modified, until the next Read, ReadChunk, WriteTo, Close or Reset of this side.
func (st *Stream) ReadChunk() ([]byte, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.readable(); err != nil {
		return nil, err
	}
	ch := st.first
	st.shift()
	st.handed = ch
	b := ch.bytes()
	s.consumed(st.stream, len(b))
	return b, nil
}

// WriteTo writes everything up to the peer's CloseWrite to w, without a copy in between.
func (st *Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		b, err := st.ReadChunk()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		m, err := w.Write(b)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
}

// readable waits until there is something to read. The lock is held.
func (st *Stream) readable() error {
	if st.handed != nil {
		st.session.mem.put(st.handed)
		st.handed = nil
	}
	for {
		if waits, err := st.state(); !waits {
			return err
		}
		st.recvCond.Wait()
	}
}

// state reports whether a Read would wait, and otherwise its error. The lock is held.
func (st *Stream) state() (waits bool, err error) {
	switch {
	case st.aborted:
		return false, st.err
	case st.closed:
		return false, fmt.Errorf("%w: reading from %s", ErrClosed, st.session.far.name)
	case st.pos < st.have:
		return false, nil
	case st.finHere:
		return false, io.EOF
	case st.err != nil && (st.final == noEnd || st.have >= st.final):
		return false, st.err
	case st.err != nil && st.session.err != nil:
		return false, st.session.err
	}
	return true, nil
}

// Notify has f called once, on a goroutine of its own, when a Read may no longer have to wait, at once if that is so
// now. It replaces the f of an earlier call; nil takes that back, but for a call that has begun. A stream that says
// nothing so needs no goroutine that waits in Read.
func (st *Stream) Notify(f func()) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.notify = f
	if waits, _ := st.state(); !waits {
		st.wakeReader()
	}
}
