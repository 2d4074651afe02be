package grpcany

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// maxDepth is how deep fields are read.
const maxDepth = 6

// minField is the minimum of a field, in bytes, that may be a tensor or hold one.
const minField = 1 << 10

// A trial finds out the kind of a field, and of the large fields in it. At each level a Scanner reads the bytes as if
// they were a message; whether the bytes in its large fields are messages as well is the next level's matter. When a
// field has ended, it was a message if nothing broke.
type trial struct {
	levels [maxDepth]level
	found  []finding
}

// A level is a field under way.
type level struct {
	trial  *trial
	number int // of the level
	path   protoscan.Path
	scan   protoscan.Scanner
	sample sampler
	before int // findings before the field
}

// A finding is the kind of a field.
type finding struct {
	path  protoscan.Path
	kind  kind
	types types
}

// maxFindings bounds the findings of a trial.
const maxFindings = 256

// begin begins a field of n bytes.
func (t *trial) begin(p protoscan.Path, n int) {
	t.found = t.found[:0]
	t.open(0, p, n)
}

func (t *trial) open(i int, p protoscan.Path, n int) {
	l := &t.levels[i]
	l.trial, l.number, l.path, l.before = t, i, p, len(t.found)
	l.sample.begin()
	l.scan.Begin(l, n)
}

// feed takes the field's next bytes.
func (t *trial) feed(b []byte) { t.levels[0].feed(b) }

func (l *level) feed(b []byte) {
	l.sample.feed(b)
	for len(b) > 0 {
		left := l.scan.Emitting()
		if left == 0 {
			n, _ := l.scan.Next(b)
			b = b[n:]
			continue
		}
		n := min(left, len(b))
		inner := &l.trial.levels[l.number+1]
		inner.feed(b[:n])
		if n == left {
			inner.end()
		}
		l.scan.Take(n)
		b = b[n:]
	}
}

// end decides the kind of a field that has ended.
func (l *level) end() {
	t := l.trial
	f := finding{path: l.path, kind: aMessage}
	if !l.scan.Whole() {
		t.found = t.found[:l.before] // fields in no message are none
		f.kind, f.types = aLeaf, l.sample.verdict()
	}
	if len(t.found) < maxFindings {
		t.found = append(t.found, f)
	}
}

// held returns about how many bytes the trial takes.
func (t *trial) held() int {
	n := int(unsafe.Sizeof(*t)) + cap(t.found)*int(unsafe.Sizeof(finding{}))
	for i := range t.levels {
		n += t.levels[i].scan.Held()
	}
	return n
}

// end ends the trial, and returns the kinds of the field and of the fields in it.
func (t *trial) end() []finding {
	t.levels[0].end()
	return t.found
}

// Field implements protoscan.Reader.
func (l *level) Field(p protoscan.Path, n int) protoscan.Action {
	if n < minField || l.number+1 >= maxDepth {
		return protoscan.Skip
	}
	l.trial.open(l.number+1, l.path<<8|p, n)
	return protoscan.Emit
}

// Kept implements protoscan.Reader.
func (*level) Kept(protoscan.Path, []byte) {}

// Number implements protoscan.Reader.
func (*level) Number(protoscan.Path, uint64) {}

// Leave implements protoscan.Reader.
func (*level) Leave(protoscan.Path) {}
