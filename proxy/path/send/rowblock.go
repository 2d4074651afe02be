package send

import (
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/residual"
)

// A rowBlock takes the residuals of a block's rows from the past while the block is being encoded.
type rowBlock struct {
	*rowPlan
	store  *residual.Store
	ids    residual.IDs        // pooled
	sample *residual.RowSample // nil: the guard does not look at the block
	waits  []coder.Ticket      // for these blocks to have been encoded
}

// submit chains a block that will be encoded: blocks of one value are encoded side by side, and after the blocks of the
// value before, so that the residual of a row is there when the row comes again. turn is the block's.
func (r *rowBlock) submit(turn coder.Ticket) {
	u := r.use
	if u.value != r.index {
		u.value, u.previous, u.last = r.index, u.last, nil
	}
	u.last = append(u.last, turn)
	r.waits = u.previous
}

// before waits for the blocks of the value before, and takes the residuals.
func (r *rowBlock) before(b *block) {
	for _, turn := range r.waits {
		turn.Await()
	}
	r.past.Take(r.ids, b.residual)
	if b.plan.flush {
		residual.Flush(b.decl.DType, b.data, b.residual)
	}
	if r.due.Measured {
		r.sample = r.past.SampleRows(b.residual)
	}
}

func (r *rowBlock) after(b *block) {
	if r.sample != nil {
		r.past.Measured(r.sample, b.data, b.residual)
	}
	r.store.GiveRows(r.past, r.ids, b.residual)
}
