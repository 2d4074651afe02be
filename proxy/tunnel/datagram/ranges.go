package datagram

import (
	"slices"
	"sort"
)

// A span is the numbers from first up to, not including, end.
type span struct{ first, end uint64 }

// spans is a set of numbers: ranges in ascending order, with gaps between them.
type spans []span

// add puts the numbers from first up to end into the set.
func (s *spans) add(first, end uint64) {
	if first >= end {
		return
	}
	list := *s
	i := sort.Search(len(list), func(i int) bool { return list[i].end >= first })
	j := i // behind the last range that begins at or before end
	for j < len(list) && list[j].first <= end {
		first, end = min(first, list[j].first), max(end, list[j].end)
		j++
	}
	if i < j {
		list[i] = span{first, end}
		*s = slices.Delete(list, i+1, j)
		return
	}
	*s = slices.Insert(list, i, span{first, end})
}

// upTo returns how many ranges begin at or before n.
func (s spans) upTo(n uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].first > n })
}

// has reports whether all numbers from first up to end are in the set.
func (s spans) has(first, end uint64) bool {
	i := s.upTo(first)
	return first >= end || i > 0 && end <= s[i-1].end
}

// contains reports whether n is in the set.
func (s spans) contains(n uint64) bool { return s.has(n, n+1) }
