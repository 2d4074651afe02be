package shadow

import (
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// An Identity names a tensor that candidates may code. Weights are named by the tensor that predicts them, whatever
// connection they go over.
type Identity struct {
	Peer  string
	Flow  policy.Flow
	Key   uint64
	Role  tensor.Role
	DType tensor.DType
	Size  int
}

// IdentityOf returns the name of a tensor that goes to a peer; false: no candidate may code it, or it is sparse, whose
// rows are not sampled.
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
	// pieceSize is how many bytes of a large tensor are sampled: as many elements as have a scale of their own under
	// 3lc, and more than other codecs take as one.
	pieceSize = 256 << 10
	// maxPieceSums bounds the pieces that are kept apart, and the pieces of a tensor that is sampled as a whole.
	maxPieceSums = 16
)

// A window has the facts of one tensor, and while it is active its part in the sample. Shadow.mu guards all fields but
// sums and the goroutine's.
type window struct {
	id       Identity
	off, n   int       // the piece that is sampled
	seen     time.Time // the last value that began, of any connection
	interval float64   // seconds between values, smoothed; 0: not known
	demand   float64   // share of a core, while it is active
	active   bool
	windows  int  // that it has had
	whole    bool // this one has counted enough

	parts []part // by piece, where there are at most maxPieceSums, and then that of the whole tensor; else one of all pieces; guarded by Shadow.figures
	at    int    // the present window's among them; the goroutine's
	begun bool   // the window has had a value; the goroutine's
}

// piece returns which bytes of a tensor are sampled in a window, by its number: the same for every connection. A large
// tensor's windows go through all of its pieces, far apart at first, since parts of a tensor may differ.
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

// apart reports whether the pieces are few enough to be kept apart.
func (w *window) apart() bool { return w.id.Size <= maxPieceSums*pieceSize }

// place returns where in parts n bytes at off belong.
func (w *window) place(off, n int) int {
	switch {
	case !w.apart():
		return 0
	case n > pieceSize:
		return maxPieceSums
	}
	return off / pieceSize
}

// begin begins a window of n bytes at off, whose values of earlier windows are with the part if residuals have waited
// as well. Shadow.figures is held.
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

// end ends a window. waits: the residuals wait for the next one of the piece. Shadow.figures is held.
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

// sum returns the sums of a candidate: of the whole tensor's windows, or of the pieces' windows where a piece has had
// more values.
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

// sumOfPieces returns the sums of a candidate over all pieces. A long tensor has windows on some pieces more often than
// on others, so Wire is computed as if all pieces had been sampled alike: each piece's ratio counts by the piece's
// bytes.
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

// complete reports whether the window may end. waits: the residuals wait for the piece's next window.
func (w *window) complete(waits bool) bool { return w.begun && w.parts[w.at].complete(waits) }
