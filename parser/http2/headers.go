package http2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2/hpack"
)

// Fields are the fields of a header block, pseudo-header fields such as :path first.
type Fields []hpack.HeaderField

// Get returns the value of the first field of that name, which is lower case; "" if there is none.
func (f Fields) Get(name string) string {
	for i := range f {
		if f[i].Name == name {
			return f[i].Value
		}
	}
	return ""
}

// Bounds on header blocks, in bytes.
const (
	maxBlock = 256 << 10 // as it is sent
	maxList  = 256 << 10 // of its fields, counted as RFC 7541, section 4.1 does
	maxTable = 64 << 10  // of the dynamic table
	keptRoom = 16 << 10  // that is kept for the next block
)

// A block is a header block under way.
type block struct {
	open   bool
	id     uint32 // of its stream
	end    bool   // the stream ends after it
	pushed bool   // it is a PUSH_PROMISE's
	data   []byte // copy of the fragments so far
}

// bits are a set of small numbers.
type bits []uint64

func (s bits) has(n int) bool { return n/64 < len(s) && s[n/64]>>(n%64)&1 == 1 }

// insertions appends to none, which is empty, which fields of a block are put into the dynamic table: the literals with
// incremental indexing (RFC 7541, section 6.2.1). It ends where the block is broken.
func insertions(none bits, b []byte) bits {
	set, number := none, 0
	for len(b) > 0 {
		first, prefix, literal := b[0], 4, true
		switch {
		case first&0x80 != 0:
			prefix, literal = 7, false
		case first&0x40 != 0:
			prefix = 6
		case first&0x20 != 0: // a new size of the table, and no field
			if _, b = integer(b, 5); b == nil {
				return set
			}
			continue
		}
		if number%64 == 0 {
			set = append(set, 0)
		}
		if prefix == 6 {
			set[number/64] |= 1 << (number % 64)
		}
		number++
		var name int
		name, b = integer(b, prefix)
		if literal && name == 0 {
			b = afterString(b)
		}
		if literal {
			b = afterString(b)
		}
	}
	return set
}

// integer returns the integer that begins in the last bits of b's first byte (section 5.1), and the bytes behind it:
// nil if it is not whole, or is larger than any block.
func integer(b []byte, prefix int) (n int, rest []byte) {
	if len(b) == 0 {
		return 0, nil
	}
	limit := 1<<prefix - 1
	if n, b = int(b[0])&limit, b[1:]; n < limit {
		return n, b
	}
	for shift := 0; len(b) > 0 && shift < 63 && n <= maxBlock; shift += 7 { // the decoder takes as many bytes
		c := b[0]
		if shift > 21 && c&0x7f != 0 {
			return 0, nil
		}
		n, b = n+int(c&0x7f)<<min(shift, 21), b[1:]
		if c&0x80 == 0 {
			return n, b
		}
	}
	return 0, nil
}

// afterString returns the bytes behind the string with which b begins (section 5.2): nil if it is not whole.
func afterString(b []byte) []byte {
	n, rest := integer(b, 7)
	if n > len(rest) {
		return nil
	}
	return rest[n:]
}

// A list decodes the header blocks of one direction. The zero list is ready for use.
type list struct {
	decoder *hpack.Decoder
	fields  Fields
	size    int  // of fields; over maxList: some are left out
	kept    bits // which fields of the block the encoder has put into the dynamic table
	number  int  // of the fields that have come
	table   int  // bytes of the dynamic table, as RFC 7541, section 4.1 counts them, or more
}

var errTooLarge = errors.New("a header block is too large")

// decode decodes a whole block. The fields are valid until forget, which must follow.
func (l *list) decode(b []byte) (Fields, error) {
	if l.decoder == nil {
		l.decoder = hpack.NewDecoder(maxTable, l.add)
		l.decoder.SetMaxStringLength(maxList)
	}
	l.kept, l.number, l.size = insertions(l.kept[:0], b), 0, 0
	if _, err := l.decoder.Write(b); err != nil {
		return nil, fmt.Errorf("header block: %w", err)
	}
	if err := l.decoder.Close(); err != nil {
		return nil, fmt.Errorf("header block: %w", err)
	}
	if l.size > maxList {
		return nil, errTooLarge
	}
	return l.fields, nil
}

// forget ends the use of the fields.
func (l *list) forget() {
	clear(l.fields)
	if l.fields = l.fields[:0]; cap(l.fields) > 1<<7 {
		l.fields = nil
	}
	if cap(l.kept) > 1<<4 {
		l.kept = nil
	}
}

// held returns about how many bytes are held between two blocks. An entry of the table takes less than twice the bytes
// that count, with the maps by which the decoder finds it.
func (l *list) held() int {
	if l.decoder == nil {
		return 0
	}
	return 2<<10 + 2*l.table
}

func (l *list) add(f hpack.HeaderField) {
	if l.kept.has(l.number) {
		l.table = min(l.table+int(f.Size()), maxTable)
	}
	l.number++
	if l.size > maxList {
		return
	}
	if l.size += int(f.Size()); l.size <= maxList {
		l.fields = append(l.fields, f)
	}
}
