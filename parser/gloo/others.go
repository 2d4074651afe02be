package gloo

import (
	"cmp"
	"slices"
)

// others are a connection's collectives that are no all-reduces, in the order of their tags. Gathers of objects and
// barriers have short messages or none, and a step may have them now and then. Where all-reduces go one way around the
// ring, gathers go the other way.
type others []otherCollective

type otherCollective struct {
	tag    uint32
	length int // of its longest message
}

const (
	maxOthers = 4 << 10 // that are remembered
	// maxSized is the length of the messages that tell the size of an object just before it comes: 8 bytes where it is
	// broadcast, twice 4 where the sizes of all ranks' objects are gathered.
	maxSized = 8
)

func (o others) find(tag uint32) (int, bool) {
	return slices.BinarySearchFunc(o, tag, func(x otherCollective, tag uint32) int { return cmp.Compare(x.tag, tag) })
}

// note takes note of a message of a collective that is no all-reduce.
func (o *others) note(tag uint32, length int) {
	i, known := o.find(tag)
	if known {
		x := &(*o)[i]
		x.length = max(x.length, length)
		return
	}
	if len(*o) >= maxOthers {
		*o = slices.Delete(*o, 0, maxOthers/2)
		i, _ = o.find(tag)
	}
	*o = slices.Insert(*o, i, otherCollective{tag, length})
}

// between returns the collectives between two tags.
func (o others) between(from, to uint32) others {
	i, _ := o.find(from)
	j, _ := o.find(to)
	return o[i:max(i, j)]
}

// elapsed returns the distance between the tags of two all-reduces, the short collectives between them left out.
// Weights of a unit whose gradients are large are gathered in messages that are not short.
func (o others) elapsed(from, to uint32) uint32 {
	short := uint32(0)
	for _, x := range o.between(from, to) {
		if x.length < crumb {
			short++
		}
	}
	return to - from - short
}

// objects counts the collectives between two tags that send objects in messages that are not short: their size comes
// just before, and no collective between two other tags has messages of their length, as gathers of weights have.
func (o others) objects(from, to, otherFrom, otherTo uint32) uint32 {
	n := uint32(0)
	for _, x := range o.between(from, to) {
		at, sized := o.find(x.tag - 1)
		if x.length < crumb || !sized || o[at].length > maxSized || o[at].length == 0 {
			continue
		}
		if !slices.ContainsFunc(o.between(otherFrom, otherTo), func(y otherCollective) bool { return y.length == x.length }) {
			n++
		}
	}
	return n
}
