package proxy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A budget bounds the bytes that the connections of a Proxy hold in one direction: blocks as they are and encoded, what
// stands among them, and what has been read. Memory counts as it is allocated (footprint), and before it is.
//
// Nobody may need another's memory to get on, since apps wait for each other in ways that a proxy does not know. So beside
// the budget each connection has spare bytes in each direction, which are enough to get on with, and:
//
//   - Who holds something may hold no more than is left to others, so whoever comes next finds something (dynamic
//     thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So it is with connections of a peer,
//     and with peers, whose connections together may hold peerShare times what is left.
//   - A sender that gets nothing waits until what it has under way itself has left. If that does not help, bytes travel
//     verbatim, in pieces that spare has room for.
//   - A sender cuts no blocks that are so large that there would not be one for each connection (allowance).
//   - A receiver that gets nothing delivers first what it has under way, and then holds one block, if spare has room for it.
//     A larger one, which only a peer with more memory or fewer connections has sent, waits its turn, before any memory is
//     taken for it. What comes behind it waits in the tunnel. If others hold the memory for memoryWait, which no
//     waiting app is likely to outlast, the connection is reset.
//
// So what is held in each direction is at most the budget and, for each connection, spare: with 256 MiB and 10,000
// connections 569 MiB.
type budget struct {
	mu     sync.Mutex
	size   int64
	used   int64
	waits  []*share // peers of whose connections some wait
	nobody share    // the peer of connections that have none, as in tests
}

// A share is what a connection, or a peer, holds of a budget. The zero share holds nothing. The budget's mu guards it.
type share struct {
	peer  *share // of whose connections this is one
	held  int64
	queue []*waiter // of a peer: its connections that wait, in the order in which they came
}

type waiter struct {
	*share
	n     int64
	ready chan struct{} // closed when it has them
}

const (
	// spare is the bytes that a connection may hold in each direction beside the budget.
	spare = 32 << 10
	// peerShare bounds what a peer's connections hold: four fifths of a budget of which nobody else has anything.
	peerShare = 4
	// memoryWait is how long a block waits for memory that others hold.
	memoryWait = 2 * time.Minute
	// leastBlock is the bytes of a block that spare has room for, whatever becomes of it.
	leastBlock = 8 << 10
)

// errMemory says that a block has waited in vain.
var errMemory = errors.New("proxy: no memory for a block")

func newBudget(bytes int64) *budget { return &budget{size: bytes} }

// take takes n bytes, unless the connection would then hold more than is left for its peer, or others of its peer wait.
func (b *budget) take(s *share, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	peer := b.peerOf(s)
	if s.held > 0 && s.held+int64(n) > b.leftFor(peer) || len(peer.queue) > 0 {
		return false
	}
	return b.add(s, int64(n))
}

// leftFor returns how many bytes a peer's connections may have beside what they hold. mu is held.
func (b *budget) leftFor(peer *share) int64 {
	return (peerShare*(b.size-b.used) - peer.held) / (peerShare + 1)
}

func (b *budget) peerOf(s *share) *share {
	if s.peer == nil {
		return &b.nobody
	}
	return s.peer
}

// add takes n bytes if there are as many for the peer. mu is held.
func (b *budget) add(s *share, n int64) bool {
	peer := b.peerOf(s)
	if n > b.leftFor(peer) {
		return false
	}
	b.used += n
	s.held += n
	peer.held += n
	return true
}

// await takes n bytes, and waits for them behind those of the same peer that wait already: for so long at most, or until
// gone is closed.
func (b *budget) await(s *share, n int, within time.Duration, gone <-chan struct{}) error {
	b.mu.Lock()
	if all, most := s.held+int64(n), b.size*peerShare/(peerShare+1); all > most { // what it has it keeps
		b.mu.Unlock()
		return fmt.Errorf("%w: a connection may have %d of %d bytes, and needs %d; raise memory, to as much as the peer has", errMemory, most, b.size, all)
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
		err = fmt.Errorf("%w: %d bytes were not to be had in %v, since other connections hold what their apps do not read; raise memory",
			errMemory, n, within)
	case <-gone:
		err = fmt.Errorf("%w: the connection has ended", errMemory)
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

// serve gives those that wait what there is for them. mu is held.
func (b *budget) serve() {
	b.waits = slices.DeleteFunc(b.waits, func(peer *share) bool {
		for len(peer.queue) > 0 && b.add(peer.queue[0].share, peer.queue[0].n) {
			close(peer.queue[0].ready)
			peer.queue = slices.Delete(peer.queue, 0, 1)
		}
		return len(peer.queue) == 0
	})
}

// give gives back n bytes.
func (b *budget) give(s *share, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= int64(n)
	s.held -= int64(n)
	b.peerOf(s).held -= int64(n)
	if len(b.waits) > 0 {
		b.serve()
	}
}

// allowance returns the most bytes that a sender lets wait together, a power of two, so that it seldom changes. Both ends
// hold a block twice, and footprints are up to a quarter more.
func (b *budget) allowance(connections int) int {
	n := leastBlock
	for most := b.size / 3 / int64(connections+1); int64(2*n) <= most && n < MaxBlock; {
		n *= 2
	}
	return n
}
