package shadow

import (
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

const (
	// tooMuch is a factor of the share. If the active windows ask for more than that, some end early.
	tooMuch = 1.25
	// maxKnown bounds the tensors that are remembered. The tensors beyond it are not sampled.
	maxKnown = 1 << 12
	// idle is the time without a value after which a window ends.
	idle = 30 * time.Second
	// yields is how long a tensor waits in favour of a refused tensor that has had fewer windows.
	yields = 10 * time.Second
)

// cost returns the bytes that a window takes in all Trials: the residual, or the values that both ends would hold, and
// the last value.
func (s *Shadow) cost(w *window) int64 {
	return int64(len(s.config.Codecs)) * (3*4*int64(w.n/w.id.DType.Size()) + 64<<10)
}

// begins notes that a value of a tensor begins. If the value belongs to the sample it returns the tensor's window and
// the piece to copy; else w is nil.
func (s *Shadow) begins(id *Identity) (w *window, off, n int) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.known.Use(*id)
	if !ok {
		if s.known.Len() >= maxKnown {
			oldest, old, _ := s.known.Oldest()
			if now.Sub(old.seen) < idle {
				return nil, 0, 0
			}
			s.retire(old)
			s.known.Delete(oldest)
		}
		w = &window{id: *id, seen: now}
		w.off, w.n = piece(id, 0)
		s.known.Put(*id, w)
		return nil, 0, 0 // how often it comes is not known yet
	}
	gap := now.Sub(w.seen).Seconds()
	if w.seen = now; w.interval == 0 {
		w.interval = gap
	} else {
		w.interval += (gap - w.interval) / 8
	}
	if w.active || s.activate(w, now) {
		return w, w.off, w.n
	}
	return nil, 0, 0
}

// activate begins a window if there is processor time and memory for it, and no tensor waits that has had fewer
// windows. s.mu must be held.
func (s *Shadow) activate(w *window, now time.Time) bool {
	waits := now.Sub(s.refused) < yields
	if waits && w.windows > s.level {
		return false
	}
	// A window alone may ask for more than the share: its values are dropped as need be.
	if !(!waits && w.apart() && w.id.Role != tensor.State && s.fits(w, 0, w.id.Size)) && !s.fitsPiece(w) && len(s.active) > 0 {
		if !waits || w.windows < s.level {
			s.level = w.windows
		}
		s.refused = now
		return false
	}
	if w.windows <= s.level {
		s.refused = time.Time{} // its wait is over: one that still waits is refused again at its next value
	}
	w.active = true
	s.active[w] = struct{}{}
	s.demand += w.demand
	s.reserved += s.cost(w)
	return true
}

// fitsPiece calls fits for the piece whose turn it is.
func (s *Shadow) fitsPiece(w *window) bool {
	off, n := piece(&w.id, w.windows)
	return s.fits(w, off, n)
}

// fits makes n bytes at off the piece of a window, and reports whether there is processor time and memory for them.
// s.mu must be held.
func (s *Shadow) fits(w *window, off, n int) bool {
	w.off, w.n = off, n
	w.demand = s.perByte * float64(n) / max(w.interval, 1e-3)
	return s.demand+w.demand <= s.config.Share && s.reserved+s.cost(w) <= s.trialsMemory()
}

// retire ends a window. The goroutine closes its lines later. s.mu must be held.
func (s *Shadow) retire(w *window) {
	if !w.active {
		return
	}
	w.active = false
	s.demand = max(0, s.demand-w.demand)
	s.reserved -= s.cost(w)
	if w.whole {
		w.windows, w.whole = w.windows+1, false
	}
	delete(s.active, w)
	s.ending = append(s.ending, w)
}

// sweep retires windows, and returns the windows that have ended since its last call. A window ends if no value of its
// tensor came for idle. The window current, which may be nil, also ends if the windows take too much time, or if it is
// complete and another tensor or another piece waits.
func (s *Shadow) sweep(current *window) (ended []*window) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := now.Sub(s.refused) < yields
	for w := range s.active {
		turn := w.n < w.id.Size || waits && s.level <= w.windows                            // of another piece, or of another tensor
		over := (len(s.active) > 1 || w.n > pieceSize) && s.demand > tooMuch*s.config.Share // its values take longer than was thought
		if w == current {
			w.whole = w.complete(s.waits(w))
		}
		if now.Sub(w.seen) > idle || w == current && (over || turn && w.whole) {
			s.retire(w)
		}
	}
	ended, s.ending = s.ending, nil
	return ended
}
