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
	// maxPieceSums bounds the pieces whose sums are kept apart.
	maxPieceSums = 16
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

// complete reports whether every candidate has counted enough.
func (w *window) complete() bool {
	for i := range w.accounts {
		if !w.accounts[i].enough(max(1, len(w.lanes.taken))) {
			return false
		}
	}
	return len(w.accounts) > 0
}
