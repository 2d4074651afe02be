package gloosim

// maxSegment is how many bytes an all-reduce sends in one message at most (allreduce.h, kMaxSegmentSize).
const maxSegment = 1 << 20

// A plan is how an all-reduce cuts a tensor (allreduce.cc, ring): into segments of equal length, the last ones shorter
// or empty, the same number for each rank and at least two, so that one travels while another is being added.
type plan struct {
	size     int // bytes of the tensor
	segment  int // bytes of a segment
	segments int // a multiple of ranks
	ranks    int
}

// A span is a piece of the tensor; with length 0 or less, nothing is sent.
type span struct{ off, len int }

func (s span) of(b []byte) []byte { return b[s.off : s.off+s.len] }

// newPlan cuts a tensor of size bytes, in elements of width bytes.
func newPlan(size, width, ranks int) plan {
	limit := width * max(1, maxSegment/width)
	segments := roundUp(max(ceil(size, limit), 2*ranks), ranks)
	return plan{size, roundUp(ceil(size, segments), width), segments, ranks}
}

// rounds is how many messages a rank sends in each phase, the empty ones included: all but its own share.
func (p plan) rounds() int { return p.segments - p.share() }

// share is the number of segments for each rank.
func (p plan) share() int { return p.segments / p.ranks }

// scatter returns the piece that a rank sends (to the rank before it) and the piece that it receives (from the one
// after it) in round i of the first phase, after which rank r holds the sum of share r.
func (p plan) scatter(rank, i int) (send, recv span) {
	return p.at((rank+1)*p.share() + i), p.at((rank+2)*p.share() + i)
}

// gather is the same for the second phase, which passes the sums on.
func (p plan) gather(rank, i int) (send, recv span) {
	return p.at(rank*p.share() + i), p.at((rank+1)*p.share() + i)
}

func (p plan) at(segment int) span {
	off := segment % p.segments * p.segment
	return span{off, max(0, min(p.segment, p.size-off))}
}

func ceil(a, b int) int { return (a + b - 1) / b }

func roundUp(a, multiple int) int { return ceil(a, multiple) * multiple }
