package lru

// None is no place.
const None = int32(-1)

// A List keeps places in the order of their last use. A place is a number below Len, of a value that the caller keeps
// by it. A List has no pointers, so there may be millions of places at 8 bytes each, and garbage collections follow
// none of them. The zero List is empty. It is not safe for concurrent use.
type List struct {
	links []link // of a ring, in which place p has links[p+1]: links[0].older is the newest place, links[0].newer the oldest
}

// A link has indexes in List.links.
type link struct{ newer, older int32 }

// Len returns the number of places.
func (l *List) Len() int { return max(0, len(l.links)-1) }

// Add makes a place, which is the newest, and returns it: the number of places before.
func (l *List) Add() (place int32) {
	if len(l.links) == 0 {
		l.links = append(l.links, link{})
	}
	at := int32(len(l.links))
	l.links = append(l.links, link{})
	insert(l.links, at)
	return at - 1
}

// Use makes a place the newest.
func (l *List) Use(place int32) {
	links := l.links
	if at := place + 1; links[0].older != at {
		unlink(links, at)
		insert(links, at)
	}
}

// Remove drops a place. The last place takes its number, unless it is that itself: the caller must move its value
// there.
func (l *List) Remove(place int32) {
	at, last := place+1, int32(len(l.links)-1)
	unlink(l.links, at)
	if at != last {
		moved := l.links[last]
		l.links[at] = moved
		l.links[moved.newer].older, l.links[moved.older].newer = at, at
	}
	if l.links = l.links[:last]; last == 1 {
		l.links = nil
	}
}

// Newest returns the place that was used most recently, or None.
func (l *List) Newest() int32 { return l.older(0) }

// Oldest returns the place that was used least recently, or None.
func (l *List) Oldest() int32 { return l.newer(0) }

// Older returns the place that was used last before the given one, or None.
func (l *List) Older(place int32) int32 { return l.older(place + 1) }

// Newer returns the place that was used first after the given one, or None.
func (l *List) Newer(place int32) int32 { return l.newer(place + 1) }

func (l *List) older(at int32) int32 {
	if len(l.links) == 0 {
		return None
	}
	return l.links[at].older - 1
}

func (l *List) newer(at int32) int32 {
	if len(l.links) == 0 {
		return None
	}
	return l.links[at].newer - 1
}

// insert makes at the newest.
func insert(links []link, at int32) {
	newest := links[0].older
	links[at] = link{newer: 0, older: newest}
	links[newest].newer = at
	links[0].older = at
}

func unlink(links []link, at int32) {
	x := links[at]
	links[x.newer].older, links[x.older].newer = x.older, x.newer
}
