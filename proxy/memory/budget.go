package memory

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Budget bounds the bytes that the connections of a proxy hold in one direction: blocks as they are and encoded, the
// bytes that stand between blocks, and bytes that have been read. Memory counts as it is allocated (Footprint), and
// before it is.
//
// No connection may need another's memory to get on, since apps wait for each other in ways that a proxy does not know.
// So beside the budget each connection has Spare bytes in each direction, which are enough to get on with, and:
//
//   - A connection that holds something may hold no more than is left to the others, so a connection that comes later
//     finds something (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). The
//     same rule holds for connections of a peer, and for peers, whose connections together may hold peerShare times the
//     bytes that are left.
//   - A sender that gets nothing waits until everything that it has under way itself has left. If that does not help,
//     bytes travel verbatim, in pieces that Spare has room for.
//   - A sender cuts no blocks that are so large that there would not be one for each connection (Allowance).
//   - A receiver that gets nothing delivers first everything that it has under way, and then holds one block, if Spare
//     has room for it. A larger one, which only a peer with more memory or fewer connections has sent, waits its turn,
//     before any memory is taken for it. The frames behind it wait in the tunnel. If others hold the memory for [Wait],
//     which no waiting app is likely to outlast, the connection is reset.
//
// So all connections together hold in each direction at most the budget and Spare for each connection: 569 MiB with a
// budget of 256 MiB and 10,000 connections.
type Budget struct {
	mu     sync.Mutex
	size   int64
	used   int64
	waits  []*Share // peers of whose connections some wait
	nobody Share    // the peer of connections that have none, as in tests
}

// A Share counts the bytes of a budget that a connection, or a peer, holds. The zero Share holds nothing. The Budget's
// mu guards its Shares.
type Share struct {
	Peer  *Share // of whose connections this is one; nil: of no peer
	held  int64
	queue []*waiter // of a peer: its connections that wait, in the order in which they came
}

type waiter struct {
	*Share
	n     int64
	ready chan struct{} // closed when it has them
}

const (
	// Spare is the bytes that a connection may hold in each direction beside the budget.
	Spare = 32 << 10
	// peerShare bounds the bytes that a peer's connections hold: four fifths of a budget if nobody else holds any of
	// it.
	peerShare = 4
	// Wait is how long a block waits for memory that others hold.
	Wait = 2 * time.Minute
	// MinBlock is the bytes of a block that Spare has room for, whatever its codec makes of it.
	MinBlock = 8 << 10
)

// ErrMemory says that a block has waited in vain for memory.
var ErrMemory = errors.New("proxy: no memory for a block")

// NewBudget returns a Budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{size: bytes} }

// Size returns the bytes that may be held.
func (b *Budget) Size() int64 { return b.size }

// Used returns the bytes that are held now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Held returns the bytes that s holds and, if s is the Share of a peer, the number of the peer's connections that wait.
func (b *Budget) Held(s *Share) (bytes int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.held, len(s.queue)
}

// Take takes n bytes, unless the connection would then hold more than is left for its peer, or others of its peer wait.
func (b *Budget) Take(s *Share, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	peer := b.peerOf(s)
	if s.held > 0 && s.held+int64(n) > b.leftFor(peer) || len(peer.queue) > 0 {
		return false
	}
	return b.add(s, int64(n))
}

// leftFor returns how many bytes a peer's connections may have beside the bytes that they hold. mu is held.
func (b *Budget) leftFor(peer *Share) int64 {
	return (peerShare*(b.size-b.used) - peer.held) / (peerShare + 1)
}

func (b *Budget) peerOf(s *Share) *Share {
	if s.Peer == nil {
		return &b.nobody
	}
	return s.Peer
}

// add takes n bytes if there are as many for the peer. mu is held.
func (b *Budget) add(s *Share, n int64) bool {
	peer := b.peerOf(s)
	if n > b.leftFor(peer) {
		return false
	}
	b.used += n
	s.held += n
	peer.held += n
	return true
}

// Await takes n bytes. It waits for them behind the connections of the same peer that wait already, for at most within,
// or until gone is closed.
func (b *Budget) Await(s *Share, n int, within time.Duration, gone <-chan struct{}) error {
	b.mu.Lock()
	if all, limit := s.held+int64(n), b.size*peerShare/(peerShare+1); all > limit { // the bytes that it has it keeps
		b.mu.Unlock()
		return fmt.Errorf("%w: a connection may have %d of %d bytes, and needs %d; raise memory, to as much as the peer has", ErrMemory, limit, b.size, all)
	}
	w, peer := &waiter{s, int64(n), make(chan struct{})}, b.peerOf(s)
	if peer.queue = append(peer.queue, w); len(peer.queue) == 1 {
		b.waits = append(b.waits, peer)
	}
	b.serve()
	b.mu.Unlock()

	timer := time.NewTimer(within)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		err = fmt.Errorf("%w: %d bytes were not to be had in %v, since other connections hold bytes that their apps do not read; raise memory",
			ErrMemory, n, within)
	case <-gone:
		err = fmt.Errorf("%w: the connection has ended", ErrMemory)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(peer.queue, w)
	if i < 0 {
		return nil // just now
	}
	peer.queue = slices.Delete(peer.queue, i, i+1)
	b.serve() // it stands in nobody's way any more
	return err
}

// serve gives bytes to the connections that wait, as far as there are any. mu is held.
func (b *Budget) serve() {
	b.waits = slices.DeleteFunc(b.waits, func(peer *Share) bool {
		for len(peer.queue) > 0 && b.add(peer.queue[0].Share, peer.queue[0].n) {
			close(peer.queue[0].ready)
			peer.queue = slices.Delete(peer.queue, 0, 1)
		}
		return len(peer.queue) == 0
	})
}

// Give gives back n bytes.
func (b *Budget) Give(s *Share, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= int64(n)
	s.held -= int64(n)
	b.peerOf(s).held -= int64(n)
	if len(b.waits) > 0 {
		b.serve()
	}
}

// Allowance returns the maximum of bytes that a sender lets wait together if a block has at most limit bytes. It is a
// power of two, so that it seldom changes. It allows for the two copies of a block that each end holds, and for
// footprints, which are up to a quarter more.
func (b *Budget) Allowance(connections, limit int) int {
	n := MinBlock
	for share := b.size / 3 / int64(connections+1); int64(2*n) <= share && n < limit; {
		n *= 2
	}
	return n
}
