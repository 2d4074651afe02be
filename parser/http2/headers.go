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

// A list decodes the header blocks of one direction. The zero list is ready for use.
type list struct {
	decoder *hpack.Decoder
	fields  Fields
	size    int // of fields; over maxList: some are left out
}

var errTooLarge = errors.New("a header block is too large")

// decode decodes a whole block. The fields are valid until the next call.
func (l *list) decode(b []byte) (Fields, error) {
	if l.decoder == nil {
		l.decoder = hpack.NewDecoder(maxTable, l.add)
		l.decoder.SetMaxStringLength(maxList)
	}
	clear(l.fields)
	l.fields, l.size = l.fields[:0], 0
	if cap(l.fields) > 1<<10 {
		l.fields = nil
	}
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

func (l *list) add(f hpack.HeaderField) {
	if l.size > maxList {
		return
	}
	if l.size += int(f.Size()); l.size <= maxList {
		l.fields = append(l.fields, f)
	}
}
