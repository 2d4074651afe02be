package shadow

import (
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// An Identity names a tensor that candidates may code. Weights are named by the tensor that predicts them, whatever connection they go over.
type Identity struct {
	Peer  string
	Flow  policy.Flow
	Key   uint64
	Role  tensor.Role
	DType tensor.DType
	Size  int
}

// IdentityOf returns the name of a tensor that goes to a peer; false: no candidate may code it, or it is sparse, whose rows are not sampled.
func IdentityOf(peer string, f policy.Flow, t *tensor.Tensor) (Identity, bool) {
	id := Identity{peer, f, t.Key, t.Role, t.DType, t.Size}
	switch {
	case t.Key == 0 || t.Keys != 0 || t.Size < policy.MinBytes || !t.DType.Float() || t.Size%t.DType.Size() != 0:
		return id, false
	case t.Role == tensor.State && t.Base != 0:
		id.Key = t.Base
		return id, true
	case t.Role == tensor.Aggregate:
		return id, f.LossyAggregates
	}
	return id, t.Role == tensor.Gradient
}

const (
	// pieceSize is how many bytes of a large tensor are sampled: as many elements as have a scale of their own under 3lc, and more than other codecs take as one.
	pieceSize = 256 << 10
	// tooMuch is how many times its share the windows may ask for, until some end early.
	tooMuch = 1.25
	// maxPieceSums bounds the pieces whose sums are kept apart.
	maxPieceSums = 16
	// maxKnown bounds the tensors that are remembered. Of a job with more the others are not sampled.
	maxKnown = 1 << 12
	// idle is how long no value of a window may come until it ends.
	idle = 30 * time.Second
	// yields is how long a tensor waits that has had more windows than one which was refused.
	yields = 10 * time.Second
)

// A window has the facts of one tensor, and while it is active its part in the sample. Shadow.mu guards all fields but sums and the goroutine's.
type window struct {
	id       Identity
	off, n   int       // the piece that is sampled
	seen     time.Time // the last value that began, of any connection
	interval float64   // seconds between values, smoothed; 0: not known
	demand   float64   // share of a core, while it is active
	active   bool
	windows  int  // that it has had
	whole    bool // this one has counted enough

	// sums, guarded by Shadow.figures, are of all windows that have ended: by piece, where there are at most maxPieceSums, else of all together; then by candidate.
	sums [][]Measure

	// The goroutine's:
	lanes    lanes     // of this window
	at       int       // where in sums this window belongs
	accounts []account // of this window, by candidate; only the goroutine changes them, under Shadow.figures
}

// piece returns which bytes of a tensor are sampled in a window, by its number: the same for every connection. A large tensor's windows go through all of its
// pieces, far apart at first, since parts of a tensor may differ.
func piece(id *Identity, number int) (off, n int) {
	pieces := (id.Size + pieceSize - 1) / pieceSize
	stride := max(1, int(float64(pieces)*0.618)) // the golden section
	for gcd(stride, pieces) != 1 {
		stride++
	}
	off = int((id.Key+uint64(number)*uint64(stride))%uint64(pieces)) * pieceSize
	return off, min(pieceSize, id.Size-off)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// place returns where in sums a piece belongs.
func (w *window) place(off int) int {
	if w.id.Size <= maxPieceSums*pieceSize {
		return off / pieceSize
	}
	return 0
}

// fold adds the measurements of this window to the sums. Shadow.figures is held.
func (w *window) fold() {
	for len(w.sums) <= w.at {
		w.sums = append(w.sums, nil)
	}
	if w.sums[w.at] == nil {
		w.sums[w.at] = make([]Measure, len(w.accounts))
	}
	for i := range w.accounts {
		m := w.accounts[i].sum()
		w.sums[w.at][i].settle(&m)
	}
	w.accounts = nil
}

// sum returns the sums of a candidate over all pieces, or, once some pieces have settled, over the settled ones. A long tensor has windows on some pieces more often than
// on others, so Wire is computed as if all pieces had been sampled alike: each piece's ratio counts by the piece's bytes.
func (w *window) sum(candidate int) (sum Measure) {
	pieces := make([]Measure, max(len(w.sums), w.at+1))
	settled := false
	for at := range pieces {
		p := &pieces[at]
		if at < len(w.sums) && w.sums[at] != nil {
			*p = w.sums[at][candidate]
		}
		if at == w.at && w.accounts != nil {
			m := w.accounts[candidate].sum()
			p.settle(&m)
		}
		settled = settled || p.Raw > 0 && p.Early == 0
	}
	var size, wire float64
	for at := range pieces {
		m := &pieces[at]
		if m.Raw == 0 || settled && m.Early > 0 {
			continue
		}
		sum.add(m)
		n := float64(min(pieceSize, w.id.Size-at*pieceSize))
		size += n
		wire += n * float64(m.Wire) / float64(m.Raw)
	}
	if size > 0 {
		sum.Wire = int64(float64(sum.Raw)*wire/size + 0.5)
	}
	return sum
}

// cost returns the bytes that a window takes in all Trials: the residual, or the values that both ends would hold, and the last value.
func (s *Shadow) cost(w *window) int64 {
	return int64(len(s.config.Codecs)) * (3*4*int64(w.n/w.id.DType.Size()) + 64<<10)
}

// begins notes that a value of a tensor begins, and returns its window and piece if the value is of the sample.
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

// activate begins a window if there is processor time and memory for it, and no tensor waits that has had fewer. s.mu is held.
func (s *Shadow) activate(w *window, now time.Time) bool {
	waits := now.Sub(s.refused) < yields
	if waits && w.windows > s.level {
		return false
	}
	w.demand = s.perByte * float64(w.n) / max(w.interval, 1e-3)
	cost := s.cost(w)
	// A window alone may ask for more than the share: its values are dropped as need be.
	fits := len(s.active) == 0 || s.demand+w.demand <= s.config.Share && s.reserved+cost <= s.trialsMemory()
	if !fits {
		if !waits || w.windows < s.level {
			s.level = w.windows
		}
		s.refused = now
		return false
	}
	w.active = true
	s.active[w] = struct{}{}
	s.demand += w.demand
	s.reserved += cost
	return true
}

// retire ends a window, whose lines the goroutine closes later. s.mu is held.
func (s *Shadow) retire(w *window) {
	if !w.active {
		return
	}
	w.active = false
	s.demand = max(0, s.demand-w.demand)
	s.reserved -= s.cost(w)
	if w.whole {
		w.windows, w.whole = w.windows+1, false
		w.off, w.n = piece(&w.id, w.windows)
	}
	delete(s.active, w)
	s.ending = append(s.ending, w)
}

// sweep retires the windows that are at their end. A window ends if no value of its tensor comes any more. The window current, which may be nil, also ends if the windows take
// too much time, or if it has counted enough and another tensor or another piece waits. sweep returns the windows that have ended since its last call.
func (s *Shadow) sweep(current *window) (ended []*window) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := now.Sub(s.refused) < yields
	for w := range s.active {
		turn := w.id.Size > pieceSize || waits && s.level <= w.windows // of another piece, or of another tensor
		over := len(s.active) > 1 && s.demand > tooMuch*s.config.Share // its values take longer than was thought
		if w == current {
			w.whole = w.complete()
		}
		if now.Sub(w.seen) > idle || w == current && (over || turn && w.whole) {
			s.retire(w)
		}
	}
	ended, s.ending = s.ending, nil
	return ended
}

// complete reports whether every candidate has counted enough.
func (w *window) complete() bool {
	for i := range w.accounts {
		if !w.accounts[i].enough(max(1, len(w.lanes.taken))) {
			return false
		}
	}
	return len(w.accounts) > 0
}
