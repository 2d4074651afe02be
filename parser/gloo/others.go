package gloo

import (
	"cmp"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
)

// others are the collectives of a connection that are no all-reduces, by their tags, in order. In jobs that shard their weights, as FSDP does, gathers
// tell where a step begins (extra.go). Where all-reduces go one way around the ring, gathers go the other way.
type others struct {
	all     []other
	weights bool // something has been gathered that may be weights
}

// An other is a collective that is no all-reduce.
type other struct {
	tag      uint32
	gathered [2]uint32 // bytes of an all-gather that each side has sent
}

// maxOthers bounds the collectives that are remembered.
const maxOthers = 4 << 10

// note takes note of an op of a collective that is no all-reduce: at its first sign, and of each payload.
func (s *others) note(side parser.Side, o op) {
	tag := o.slot.tag()
	i, known := s.find(tag)
	if !known {
		if len(s.all) >= maxOthers {
			s.all = slices.Delete(s.all, 0, maxOthers/2)
			i, _ = s.find(tag)
		}
		s.all = slices.Insert(s.all, i, other{tag: tag})
	}
	if o.slot.kind() == allGather && o.code.payload() {
		sent := &s.all[i].gathered[side]
		*sent = uint32(min(uint64(*sent)+uint64(o.length), math.MaxUint32))
		s.weights = s.weights || *sent >= crumb
	}
}

func (s *others) find(tag uint32) (int, bool) {
	return slices.BinarySearchFunc(s.all, tag, func(o other, tag uint32) int { return cmp.Compare(o.tag, tag) })
}

// between returns the collectives after one tag and before another.
func (s *others) between(from, to uint32) collectives {
	i, _ := s.find(from)
	j, _ := s.find(to)
	return s.all[min(i, j):j]
}

// collectives are some of the others, in order.
type collectives []other

// gathers returns how many of the collectives gather more than a few bytes, such as the weights of a unit whose gradients are large, and all bytes of these.
func (s collectives) gathers() (n, bytes int) {
	for i := range s {
		if size := s[i].size(); size >= crumb {
			n, bytes = n+1, bytes+size
		}
	}
	return n, bytes
}

// size returns the bytes of a gather that pass on the connection one way.
func (o *other) size() int { return int(max(o.gathered[0], o.gathered[1])) }

// gathersOf returns how many of the collectives gather weights of as many elements as an all-reduce sums that sends so many bytes. An element of the sum has
// half as many bytes as a weight, or up to four times as many.
func (s collectives) gathersOf(reduced int) (n int) {
	for i := range s {
		for twice := s[i].size(); twice > 0 && twice <= 8*s[i].size(); twice *= 2 {
			if d := reduced - twice; d <= reduced/64 && -d <= reduced/64 {
				n++
				break
			}
		}
	}
	return n
}
