package proxy

// A lender gives one direction of a connection memory that its budget pays for. The methods may be called by any
// goroutine.
type lender struct {
	buffers *buffers
	budget  *budget
	share   share
}

// lenderOf returns the lender of a connection's direction. peer is the share of its peer, or nil.
func (p *Proxy) lenderOf(b *budget, peer *share) lender {
	return lender{buffers: &p.buffers, budget: b, share: share{peer: peer}}
}

// A loan is a buffer, and what it has taken of the budget.
type loan struct {
	buf  []byte
	paid int
}

// pieceSize is the size of buffers for which spare has room: one that is read into, and one that is sent from.
const pieceSize = spare / 2

// lend lends a buffer of size bytes, or of pieceSize if there is no memory for more.
func (l *lender) lend(size int) loan {
	if n := footprint(size); l.take(n) {
		return loan{l.buffers.get(size), n}
	}
	return loan{l.buffers.get(min(size, pieceSize)), 0}
}

// copy lends a copy of b, if there is memory for it.
func (l *lender) copy(b []byte) (loan, bool) {
	n := footprint(len(b))
	if !l.take(n) {
		return loan{}, false
	}
	return loan{append(l.buffers.get(len(b))[:0], b...), n}, true
}

func (l *lender) back(x loan) {
	l.buffers.put(x.buf)
	l.give(x.paid)
}

func (l *lender) take(n int) bool { return l.budget.take(&l.share, n) }

func (l *lender) give(n int) {
	if n > 0 {
		l.budget.give(&l.share, n)
	}
}
