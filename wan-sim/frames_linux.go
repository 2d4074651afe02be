package wansim

import "time"

// A frameQueue holds frames in order, each with its time of arrival. The slab into which the kernel
// writes a frame is where it waits. Slabs are reused: the link makes no garbage.
type frameQueue struct {
	frames []frame // frames[head:] wait
	head   int
	bytes  int // held
	into   *slab
	spare  []*slab
}

type frame struct {
	at   time.Duration // since the link began
	data []byte
	slab *slab
}

type slab struct {
	buf  []byte
	used int
	live int // frames in it that wait
}

// Sizes in bytes. A slab holds many frames of 1.5 KB or a few of 64 KiB.
const (
	slabSize  = 1 << 20
	spareSize = 16 << 20
)

// space returns room for one frame, owned by the queue; push with a prefix of it keeps that.
func (q *frameQueue) space() []byte {
	if q.into != nil && q.into.live == 0 {
		q.into.used = 0
	}
	if q.into == nil || slabSize-q.into.used < maxFrame {
		if n := len(q.spare); n > 0 {
			q.into, q.spare = q.spare[n-1], q.spare[:n-1]
		} else {
			q.into = &slab{buf: make([]byte, slabSize)}
		}
	}
	return q.into.buf[q.into.used : q.into.used+maxFrame]
}

// push appends the first n bytes of the last space as a frame that arrives at at.
func (q *frameQueue) push(at time.Duration, n int) {
	s := q.into
	if len(q.frames) == cap(q.frames) && q.head > len(q.frames)/2 { // move rather than grow
		kept := copy(q.frames, q.frames[q.head:])
		clear(q.frames[kept:])
		q.frames, q.head = q.frames[:kept], 0
	}
	q.frames = append(q.frames, frame{at, s.buf[s.used : s.used+n : s.used+n], s})
	s.used += n
	s.live++
	q.bytes += n
}

// first returns the frame at the head, whose data is valid until pop.
func (q *frameQueue) first() (f frame, ok bool) {
	if q.head == len(q.frames) {
		return frame{}, false
	}
	return q.frames[q.head], true
}

// pop removes the frame at the head.
func (q *frameQueue) pop() {
	f := q.frames[q.head]
	q.frames[q.head] = frame{}
	if q.head++; q.head == len(q.frames) {
		q.frames, q.head = q.frames[:0], 0
	}
	q.bytes -= len(f.data)
	if f.slab.live--; f.slab.live == 0 && f.slab != q.into {
		f.slab.used = 0
		if len(q.spare) < spareSize/slabSize {
			q.spare = append(q.spare, f.slab)
		}
	}
}
