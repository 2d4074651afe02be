//go:build amd64 || arm64

package probe

import "slices"

// wordsOfCounts are the words of reference counts, less one, with which objects begin in each layout.
var wordsOfCounts = [len(probeCall{}.Sums)]int{0, 1, 0}

// A group is the part of a process group's state that its calls tell.
type group struct {
	generation, size uint32
	members          [2]uint64
}

func (p *probeProcess) group(i int) group {
	g := &p.Groups[i]
	return group{uint32(g.Expected), g.Size, g.Members}
}

// member returns the process's rank in the group; the zero Member if the words that should hold it do not.
func (g group) member(layout int) Member {
	v := g.members[wordsOfCounts[layout]]
	m := Member{int(uint32(v)), int(v >> 32)}
	if m.Rank >= m.Ranks || m.Ranks > maxRanks || g.size != 0 && int(g.size) != m.Ranks {
		return Member{}
	}
	return m
}

// maxRanks bounds the ranks of a group.
const maxRanks = 1 << 16

// appendCall appends a call of the group in each layout.
func (g group) appendCall(dst []Call, call *probeCall) []Call {
	for layout, sum := range call.Sums {
		c := Call{Source: uint64(g.generation)*uint64(len(call.Sums)) + uint64(layout), Ranks: int(g.size)}
		if call.Tensors == 1 {
			c.Freed, c.Member = call.Freed, g.member(layout)
			c.Elements, c.Type, c.Op, c.Storage, c.Bucket = sum.Elements, sum.Type, sum.Op, sum.Storage, call.Bucket != 0
			if c.Elements == 0 || c.Elements > NoElements || c.Op > maxOp || c.Type > maxType {
				c.Elements = NoElements
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// The highest numbers of c10d::ReduceOp::RedOpType and c10::ScalarType, rounded up: higher ones are in no layout that
// is right.
const (
	maxOp   = 15
	maxType = 63
)

// unknownRelease reports whether a call sums a bucket whose size is in no layout. layouts are the call as each of them
// shows it.
func unknownRelease(layouts []Call, c *probeCall) bool {
	return !slices.ContainsFunc(layouts, func(c Call) bool { return !c.Bucket || c.Elements != NoElements }) && !isEmpty(c)
}

// isEmpty reports whether a layout shows a tensor without elements, as a bucket's is whose parameters have none. The
// sum of such a tensor sends nothing. A zero alone proves little: where one layout has the number of elements, another
// one may have the offset in the memory, which is zero. So the other words must be a bucket's too.
func isEmpty(c *probeCall) bool {
	for _, s := range c.Sums {
		if s.Elements == 0 && s.Storage != 0 && s.Op <= OpAverage && slices.Contains(floatTypes[:], s.Type) {
			return true
		}
	}
	return false
}

// floatTypes are c10::ScalarType of float16, float32, float64 and bfloat16.
var floatTypes = [...]uint8{5, 6, 7, 15}
