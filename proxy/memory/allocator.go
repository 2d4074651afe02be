package memory

// An Allocator gives one direction of a connection buffers that its budget pays for. The methods may be called by any
// goroutine. An Allocator must not be copied once it is in use.
type Allocator struct {
	Pool   *Pool
	Budget *Budget
	Share  Share
}

// NewAllocator returns the Allocator of a connection's direction. peer is the share of the connection's peer, or nil.
func NewAllocator(p *Pool, b *Budget, peer *Share) Allocator {
	return Allocator{Pool: p, Budget: b, Share: Share{Peer: peer}}
}

// A Buffer is a byte slice with one owner, which must give it back to the Allocator. The zero Buffer is empty.
type Buffer struct {
	B    []byte
	Cost int // bytes that were taken from the budget for it; 0: it is from the connection's spare bytes
}

// PieceSize is the size of a buffer of which Spare has room for two: one to read into, and one to send from.
const PieceSize = Spare / 2

// Get returns a Buffer of size bytes, or of PieceSize if the budget has no bytes for more.
func (a *Allocator) Get(size int) Buffer {
	if n := Footprint(size); a.Take(n) {
		return Buffer{a.Pool.Get(size), n}
	}
	return Buffer{a.Pool.Get(min(size, PieceSize)), 0}
}

// Copy returns a copy of b, if the budget has bytes for it.
func (a *Allocator) Copy(b []byte) (Buffer, bool) {
	n := Footprint(len(b))
	if !a.Take(n) {
		return Buffer{}, false
	}
	return Buffer{append(a.Pool.Get(len(b))[:0], b...), n}, true
}

// Put takes back a Buffer of Get or Copy.
func (a *Allocator) Put(x Buffer) {
	a.Pool.Put(x.B)
	a.Give(x.Cost)
}

// Take takes n bytes from the budget, and reports whether the budget had them.
func (a *Allocator) Take(n int) bool { return a.Budget.Take(&a.Share, n) }

// Give gives n bytes back to the budget.
func (a *Allocator) Give(n int) {
	if n > 0 {
		a.Budget.Give(&a.Share, n)
	}
}
