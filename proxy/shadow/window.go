package shadow

import (
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// An Identity names a tensor that candidates may code. The Key of weights is that of the tensor that predicts them, so
// that they have one Identity on all connections.
type Identity struct {
	Peer  string
	Flow  policy.Flow
	Key   uint64
	Role  tensor.Role
	DType tensor.DType
	Size  int
}

// IdentityOf returns the Identity of a tensor that goes to a peer. It returns false if no candidate may code the
// tensor, or if the tensor is sparse, since rows are not sampled.
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
	// pieceSize is the size of the pieces of a large tensor, in bytes: as many float32 elements as share a scale under
	// 3lc, which is more than other codecs take at once.
	pieceSize = 256 << 10
	// maxPieceSums bounds the pieces of a tensor that have sums of their own, and the size, in pieces, of a tensor that
	// may be sampled as a whole.
	maxPieceSums = 16
)

// A window has the results for one tensor and, while it is active, the tensor's part in the sample. Shadow.mu guards
// the fields down to whole.
type window struct {
	id       Identity
	off, n   int       // the piece that is sampled
	seen     time.Time // the last value that began, of any connection
	interval float64   // seconds between values, smoothed; 0: not known
	demand   float64   // share of a core, while it is active
	active   bool
	windows  int  // windows of the tensor that were complete
	whole    bool // the present window is complete

	// parts has a part for each piece and, after maxPieceSums of them, one for the whole tensor. A tensor of more than
	// maxPieceSums pieces has one part for all of them. Guarded by Shadow.figures.
	parts []part
	at    int  // index in parts of the present window's part; only the goroutine uses it
	begun bool // the present window has had a value; only the goroutine uses it
}

// piece returns the offset and the length of the bytes of a tensor that its window of that number samples, the same for
// every connection. The windows of a large tensor go through all of its pieces; consecutive ones are far apart, since
// parts of a tensor may differ.
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

// apart reports whether the pieces are few enough to have sums of their own.
func (w *window) apart() bool { return w.id.Size <= maxPieceSums*pieceSize }

// place returns the index in parts of the part to which n bytes at off belong.
func (w *window) place(off, n int) int {
	switch {
	case !w.apart():
		return 0
	case n > pieceSize:
		return maxPieceSums
	}
	return off / pieceSize
}

// begin begins a window of n bytes at off. waited says whether the part's residuals have waited for it: then the values
// of the part's earlier windows belong to it too. Shadow.figures must be held.
func (w *window) begin(off, n, candidates int, waited bool) {
	w.at, w.begun = w.place(off, n), true
	for len(w.parts) <= w.at {
		w.parts = append(w.parts, part{})
	}
	p := &w.parts[w.at]
	if !waited {
		p.fold()
	}
	p.begin(candidates)
}

// end ends a window. waits says whether the residuals wait for the next window of the piece. Shadow.figures must be
// held.
func (w *window) end(waits bool) {
	if !w.begun {
		return
	}
	w.begun = false
	p := &w.parts[w.at]
	p.lanes.rest()
	if !waits {
		p.fold()
	}
}

// sum returns the sum of a candidate: that of the windows of the whole tensor or, if a piece has had more values than
// these, that of the windows of all pieces.
func (w *window) sum(candidate int) Measure {
	if len(w.parts) > maxPieceSums {
		whole := &w.parts[maxPieceSums]
		more := func(p part) bool { return p.coded != nil && p.coded[candidate] > whole.coded[candidate] }
		if sum := whole.sum(candidate); sum.Raw > 0 && !slices.ContainsFunc(w.parts[:maxPieceSums], more) {
			return sum
		}
	}
	return w.sumOfPieces(candidate)
}

// sumOfPieces returns the sum of a candidate over all pieces. A long tensor may have had more windows on some pieces
// than on others, so Wire is computed as if all pieces had been sampled alike: each piece's ratio has the weight of the
// piece's bytes.
func (w *window) sumOfPieces(candidate int) (sum Measure) {
	var size, wire float64
	for at := range w.parts[:min(len(w.parts), maxPieceSums)] {
		m := w.parts[at].sum(candidate)
		if m.Raw == 0 {
			continue
		}
		sum.add(&m)
		n := float64(min(pieceSize, w.id.Size-at*pieceSize))
		size += n
		wire += n * float64(m.Wire) / float64(m.Raw)
	}
	if size > 0 {
		sum.Wire = int64(float64(sum.Raw)*wire/size + 0.5)
	}
	return sum
}

// complete reports whether the window may end. waits says whether the residuals wait for the next window of the piece.
func (w *window) complete(waits bool) bool { return w.begun && w.parts[w.at].complete(waits) }
