package gloo

import "slices"

// The ring of gloo/allreduce.cc (allreduce with ring: reduce-scatter, then all-gather), as a pure function of its
// parameters. With n ranks and a tensor of S bytes in elements of e bytes:
//
//	limit = e * max(1, 2^20 / e)                       whole elements in 1 MiB
//	N     = up(max(ceil(S / limit), 2n), n)            segments; P = N / n of them a rank
//	G     = up(ceil(S / N), e)                         bytes a segment; the last ones are shorter or empty
//	phase 1: rank r sends segments ((r+1)*P + i) mod N for i in 0 .. N-P-1
//	phase 2: rank r sends segments ( r   *P + i) mod N for i in 0 .. N-P-1
//
// where up(a, m) is a rounded up to a multiple of m. Empty segments are not sent.

const (
	maxSegment = 1 << 20 // bytes
	maxRanks   = 64      // beyond which this package does not guess
	// crumb is the length of a message, in bytes, below which no plan is made: the tensors of such messages are too
	// small to matter, and with empty segments their messages tell little.
	crumb = 512
)

// A plan says how the bytes of one all-reduce are cut into segments.
type plan struct {
	ranks    int // n
	size     int // S, bytes
	segment  int // G, bytes
	perRank  int // P
	segments int // N
}

func ceilDiv(a, b int) int { return (a-1)/b + 1 }
func up(a, m int) int      { return ceilDiv(a, m) * m }

// planOf returns the plan of an all-reduce of size bytes, at least 1, in elements of elem bytes, among ranks.
func planOf(size, elem, ranks int) plan {
	limit := elem * max(1, maxSegment/elem)
	n := up(max(ceilDiv(size, limit), 2*ranks), ranks)
	return plan{ranks: ranks, size: size, segment: up(ceilDiv(size, n), elem), perRank: n / ranks, segments: n}
}

// phase returns the number of messages that a rank sends in each of the two phases, empty ones included.
func (p plan) phase() int { return p.segments - p.perRank }

// messages returns the number of messages that a rank sends, empty ones included.
func (p plan) messages() int { return 2 * p.phase() }

// offset returns the offset in the tensor of rank's message k, in bytes.
func (p plan) offset(rank, k int) int {
	i, first := k, rank+1
	if k >= p.phase() {
		i, first = k-p.phase(), rank
	}
	return (first*p.perRank + i) % p.segments * p.segment
}

// length returns the length of rank's message k, in bytes. A message of length 0 is not sent.
func (p plan) length(rank, k int) int {
	return max(0, min(p.segment, p.size-p.offset(rank, k)))
}

// firsts returns the length of the first message of each rank.
func firsts(p plan) []int {
	all := make([]int, p.ranks)
	for rank := range all {
		for k := 0; k < p.messages() && all[rank] == 0; k++ {
			all[rank] = p.length(rank, k)
		}
	}
	return all
}

// part returns the message of the first phase that has the same segment as a rank's message k. If mine is true it is a
// message of the rank itself, which went to the same neighbour before k; else it is the neighbour's and came the other
// way. part returns false if neither message passes on this connection.
//
// In phase 1 a rank sends a segment's sum so far, with its own input added; in phase 2 it sends the result. Of two
// ranks, each sends in one phase the segments that the other sends in the other phase. Among more, a rank sends all
// segments except its neighbour's in phase 1, and all except the neighbour's neighbour's in phase 2.
func (p plan) part(k int) (first int, mine, ok bool) {
	i := k - p.phase()
	switch {
	case !p.full() || k < 0 || k >= p.messages():
		return 0, false, false
	case i < 0:
		return k, true, true
	case i >= p.perRank:
		return i - p.perRank, true, true
	}
	return i, false, p.ranks == 2
}

// full reports whether no segment is empty, so that the count of messages tells the phase.
func (p plan) full() bool { return (p.segments-1)*p.segment < p.size }

// A ring is a plan, and the ranks that may be the sender.
type ring struct {
	plan
	senders uint64 // bit r: rank r may be the sender
}

// everyRank returns the ring of a plan with any sender.
func everyRank(p plan) ring { return ring{p, 1<<p.ranks - 1} }

// sends reports whether some rank's message k of the plan has that length, and rules out the other ranks as senders.
func (r *ring) sends(k, length int) bool {
	if !r.full() {
		return true
	}
	for rank := range r.ranks {
		if k >= r.messages() || r.length(rank, k) != length {
			r.senders &^= 1 << rank
		}
	}
	return r.senders != 0
}

// learnt returns the plan among ranks that has perRank segments of segment bytes a rank, the last of them of tail
// bytes. It reports false if no tensor of whole elements is cut so.
func learnt(ranks, perRank, segment, tail int) (plan, bool) {
	n := ranks * perRank
	if tail <= 0 || tail > segment || segment > maxSegment || perRank < 2 {
		return plan{}, false
	}
	size := (n-1)*segment + tail
	for e := 8; e >= 1; e /= 2 {
		if p := planOf(size, e, ranks); size%e == 0 && p.segments == n && p.segment == segment {
			return p, true
		}
	}
	return plan{}, false
}

// maxPerRank returns the maximum number of segments per rank if a segment has so many bytes. A rank has more than two
// segments only if the tensor has over 1 MiB for each segment of one rank less.
func maxPerRank(segment int) int {
	if segment >= maxSegment {
		return 1 << 20
	}
	return max(2, maxSegment/(maxSegment-segment)+1)
}

// ranksOf returns the number of ranks that follows from the number of messages of an all-reduce and the length of a
// segment, or 0 if it is not certain.
func ranksOf(messages, segment int) int {
	if segment <= 0 || maxPerRank(segment) > 2 || messages%4 != 0 {
		return 0
	}
	return messages/4 + 1
}

// tails returns the numbers of the two messages, of phase 1 and of phase 2, by which a rank sends the last segment; -1:
// it does not send the last segment in that phase.
func tails(ranks, perRank, rank int) (first, second int) {
	n := ranks * perRank
	first, second = n-1-(rank+1)*perRank, n-1-rank*perRank+(n-perRank)
	if rank == ranks-1 {
		first = -1
	}
	if rank == 0 {
		second = -1
	}
	return first, second
}

// match returns the plan that rank's messages of these lengths follow to the end, if there is one: count messages, the
// k-th of length(k) bytes.
func match(ranks, rank, count int, length func(k int) int) (plan, bool) {
	if ranks < 2 || count < 4*(ranks-1) || count%(2*(ranks-1)) != 0 {
		return plan{}, false
	}
	perRank, segment := count/(2*(ranks-1)), length(0)
	if perRank > maxPerRank(segment) {
		return plan{}, false
	}
	first, second := tails(ranks, perRank, rank)
	tail := segment
	switch {
	case first >= 0:
		tail = length(first)
	case second >= 0:
		tail = length(second)
	}
	p, ok := learnt(ranks, perRank, segment, tail)
	if !ok {
		return plan{}, false
	}
	for k := range count {
		want := segment
		if k == first || k == second {
			want = tail
		}
		if length(k) != want {
			return plan{}, false
		}
	}
	return p, true
}

// widths lists the bytes that an element of a gradient can have, the usual first.
var widths = [...]int{4, 2, 8}

// bucketPlan returns the plan of a bucket whose first message, of some rank, has that length.
func bucketPlan(elements uint64, ranks, first int) (p plan, width int, ok bool) {
	for _, w := range widths {
		p := planOf(int(elements)*w, w, ranks)
		if p.segment == first || p.segment < crumb && slices.ContainsFunc(firsts(p), func(l int) bool { return l == first }) {
			return p, w, true
		}
	}
	return plan{}, 0, false
}
