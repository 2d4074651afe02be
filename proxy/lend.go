package proxy

import (
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// account takes n bytes of the room, for a value or none. What the peer has given up may still have to be decoded, after
// what was put before.
func (h *holder) account(n int64, values int) error {
	for waited := false; ; waited = true {
		h.mu.Lock()
		used, count := h.used+n, h.count+values
		fits := used <= h.room && count <= mostValues
		if fits {
			h.used, h.count = used, count
		}
		h.mu.Unlock()
		switch {
		case fits:
			return nil
		case waited:
			return fmt.Errorf("%w: %d values with their slots have %d bytes, where %d and %d have room", frame.ErrFrame, count, used, mostValues, h.room)
		}
		if err := h.pipe.Wait(); err != nil {
			return err
		}
	}
}

// free gives back what account has taken. mu is held.
func (h *holder) free(n int64, values int) {
	h.used -= n
	h.count -= values
}

// await lends a value once it is there, until release. gone ends the wait.
func (h *holder) await(r frame.ValueRef, gone <-chan struct{}) (*heldValue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.values[r.ID] == nil && r.ID > h.stored && !h.comes(r.ID, gone) {
		return nil, errValues
	}
	v := h.values[r.ID]
	switch {
	case v == nil:
		return nil, fmt.Errorf("%w: ref to value %d, which is not held", frame.ErrFrame, r.ID)
	case len(v.data) != r.Size:
		return nil, fmt.Errorf("%w: ref to %d bytes of a value of %d", frame.ErrFrame, r.Size, len(v.data))
	}
	if v.lent++; v.lent == 1 {
		h.lends(len(v.data))
	}
	return v, nil
}

// comes waits for a value. mu is held, and let go meanwhile.
func (h *holder) comes(id uint64, gone <-chan struct{}) bool {
	w := h.waits[id]
	if w == nil {
		w = &valueWait{there: make(chan struct{})}
		h.waits[id] = w
	}
	w.n++
	h.mu.Unlock()
	came := true
	select {
	case <-w.there:
	case <-h.dead:
		came = false
	case <-gone:
		came = false
	}
	h.mu.Lock()
	if w.n--; w.n == 0 && h.waits[id] == w {
		delete(h.waits, id)
	}
	return came
}

// release takes back a value that await has lent.
func (h *holder) release(v *heldValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.lent--; v.lent > 0 {
		return
	}
	h.lends(-len(v.data))
	if v.forgotten {
		h.free(int64(len(v.data)), 1)
	}
}

// lends counts the bytes of values that are being delivered. mu is held.
func (h *holder) lends(n int) {
	h.lent += int64(n)
	if h.lost {
		h.sharer.lingers.Add(int64(n))
	}
}

// lose notes that the stream is lost: what is being delivered lingers.
func (h *holder) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lost {
		h.lost = true
		h.sharer.lingers.Add(h.lent)
	}
}
