package cache

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// An index finds the values that the peer holds by their content alone, wherever in them the content begins: a
// framework that sends bytes again may send them on another connection, and the sender may see them in other pieces. So
// the index has marks: places in values that the 64 bytes before them choose, of about 1,024 places one, and the place
// behind the first 64 bytes. Bytes that have a mark of a value are compared with that value, before the mark and behind
// it.
//
// A mark takes about 64 bytes of memory beside the room for values: a sixteenth of the values' bytes.
//
// Values whose content the framework names before it comes are found by that name as well, without a look at marks. A
// name is not believed: only bytes that are the value's are.
type index struct {
	marks map[uint64]markOf
	names map[name]*entry
}

// named returns the entry of that name that begins with b, or nil.
func (x *index) named(n name, b []byte) *entry {
	if e := x.names[n]; e != nil && bytes.HasPrefix(e.raw, b) {
		return e
	}
	return nil
}

// A markOf is a mark of an entry.
type markOf struct {
	entry *entry
	at    int // offset in the value of the byte behind the mark's window
}

// add has an entry found, whose marks are known.
func (x *index) add(e *entry) {
	if x.marks == nil {
		x.marks = map[uint64]markOf{}
	}
	for _, m := range e.marks {
		x.marks[m.hash] = markOf{e, m.at}
	}
	if e.name == (name{}) {
		return
	}
	if x.names == nil {
		x.names = map[name]*entry{}
	}
	x.names[e.name] = e
}

// remove has an entry no longer found.
func (x *index) remove(e *entry) {
	for _, m := range e.marks {
		if x.marks[m.hash].entry == e {
			delete(x.marks, m.hash)
		}
	}
	if x.names[e.name] == e {
		delete(x.names, e.name)
	}
}

// A span is bytes, by their offset, that are n bytes of an entry's value.
type span struct {
	at, n int
	entry *entry
	from  int // offset in the value
}

// cover returns the parts of b that are parts of values, in their order, as far as b's marks show them.
func (x *index) cover(b []byte, marks []mark, after place) (spans []span) {
	end := 0
	if s, ok := after.goesOn(b); ok {
		spans, end = append(spans, s), s.n
	}
	for _, m := range marks {
		if m.at < end {
			continue
		}
		of, ok := x.marks[m.hash]
		if !ok {
			continue
		}
		raw := of.entry.raw
		before := commonSuffix(raw[:of.at], b[end:m.at])
		n := before + commonPrefix(raw[of.at:], b[m.at:])
		if n < minSpan {
			continue
		}
		spans = append(spans, span{m.at - before, n, of.entry, of.at - before})
		end = m.at - before + n
	}
	return spans
}

// maxSkipped is the maximum of bytes between two spans, where the second goes on where the first ended: the rest of an
// element.
const maxSkipped = 16

// goesOn returns the bytes of b that are the next ones of the value, or begin a little later in it.
func (p place) goesOn(b []byte) (s span, ok bool) {
	if p.entry == nil {
		return s, false
	}
	raw := p.entry.raw
	for at := p.at; at < min(len(raw), p.at+maxSkipped); at++ {
		if n := commonPrefix(raw[at:], b); n >= minSpan {
			return span{0, n, p.entry, at}, true
		}
	}
	return s, false
}

// commonPrefix returns how many bytes a and b have in common from their beginnings.
func commonPrefix(a, b []byte) (n int) {
	for end := min(len(a), len(b)); n < end; n++ {
		if n+8 <= end {
			if d := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); d != 0 {
				return n + bits.TrailingZeros64(d)/8
			}
			n += 7
			continue
		}
		if a[n] != b[n] {
			break
		}
	}
	return n
}

// commonSuffix returns how many bytes a and b have in common before their ends.
func commonSuffix(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
