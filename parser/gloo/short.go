package gloo

import "slices"

// shortTags are the tags of a connection's collectives that have short messages and are no all-reduces, in order. Gathers of objects have such
// messages, and a step may have them now and then. Where all-reduces go one way around the ring, gathers go the other way.
type shortTags []uint32

// maxShort bounds the tags that are remembered.
const maxShort = 4 << 10

// note takes note of a message of a collective that is no all-reduce.
func (s *shortTags) note(tag uint32, length int) {
	i, known := slices.BinarySearch(*s, tag)
	switch {
	case known && length >= crumb:
		*s = slices.Delete(*s, i, i+1)
	case !known && length < crumb:
		if len(*s) >= maxShort {
			*s = slices.Delete(*s, 0, maxShort/2)
			i, _ = slices.BinarySearch(*s, tag)
		}
		*s = slices.Insert(*s, i, tag)
	}
}

// elapsed returns the distance between the tags of two all-reduces, the short collectives between them left out. Weights of a unit whose gradients are large are
// gathered in messages that are not short.
func (s shortTags) elapsed(from, to uint32) uint32 {
	i, _ := slices.BinarySearch(s, from)
	j, _ := slices.BinarySearch(s, to)
	return to - from - uint32(j-i)
}
