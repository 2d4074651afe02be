package skcompress

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return decoder{m, n}, nil }

type decoder struct {
	method
	n int
}

func (d decoder) Decode(dst []float32, src []byte) error {
	if len(dst) != d.n {
		panic(fmt.Sprintf("skcompress: %d values for a decoder of %d", len(dst), d.n))
	}
	w := d.pool.Get().(*work)
	defer d.pool.Put(w)
	for from := 0; from < d.n; from += d.Config.Block {
		y := dst[from:min(from+d.Config.Block, d.n)]
		used, err := d.decodeBlock(w, y, src)
		if err != nil {
			return fmt.Errorf("%w (values %d to %d)", err, from, from+len(y)-1)
		}
		src = src[used:]
	}
	if len(src) > 0 {
		return corrupt("%d bytes follow its %d values", len(src), d.n)
	}
	return nil
}

func corrupt(format string, v ...any) error {
	return fmt.Errorf("%w: skcompress: %s", codecs.ErrCorrupt, fmt.Sprintf(format, v...))
}

// decodeBlock sets y from the block with which src begins, and returns the bytes in that block.
func (m method) decodeBlock(w *work, y []float32, src []byte) (used int, err error) {
	if len(src) == 0 {
		return 0, corrupt("it ends before a block's form")
	}
	form := src[0]
	if form > formJointZeros || (form == formJoint || form == formJointZeros) != (m.Mode == Joint) && form != formZeros {
		return 0, corrupt("its form is %d, which mode %s has not", form, m.Mode)
	}
	if form == formZeros {
		clear(y)
		return 1, nil
	}
	l := layout{per: m.perGroup(), joint: m.Mode == Joint}
	if form == formJointZeros {
		l.zeros = 1
	}
	if len(src) < 2 {
		return 0, corrupt("it ends before a block's salt")
	}
	salt, used := src[1], 2
	n, err := m.readMeans(w, &l, src[used:])
	if err != nil {
		return 0, err
	}
	used += n
	w.class = slices.Grow(w.class[:0], len(y))[:len(y)]
	if form == formLists {
		if n, err = w.readLists(src[used:]); err != nil {
			return 0, err
		}
		used += n
	}
	in := bitio.NewReader(src[used:])
	switch form {
	case formMap:
		if !w.readCoded(&in, w.class, l.classes()) {
			return 0, corrupt("its groups do not fit %d values", len(y))
		}
	case formJoint, formJointZeros:
		for i := range w.class {
			w.class[i] = 1
		}
	}
	w.count()
	w.sketches(m.Rows, m.Cols, salt)
	if !w.readCoded(&in, w.cells, l.alphabet()) {
		return 0, corrupt("its cells are not %d numbers below %d", len(w.cells), l.alphabet())
	}
	n, ok := in.Close()
	if !ok {
		return 0, corrupt("its bits do not end after its cells")
	}
	return used + n, w.query(y)
}

// readMeans reads how many buckets there are, and their means, and lays out both.
func (m method) readMeans(w *work, l *layout, src []byte) (used int, err error) {
	for sign := range l.buckets {
		q, n := binary.Uvarint(src[used:])
		if n <= 0 || q > maxQ {
			return 0, corrupt("how many buckets it has is no number up to %d", maxQ)
		}
		l.buckets[sign] = int(q)
		used += n
	}
	q := l.buckets[negative] + l.buckets[positive]
	if q < 1 || q > m.Q+1 {
		return 0, corrupt("it has %d buckets, and not 1 to %d", q, m.Q+1)
	}
	if len(src)-used < 4*q {
		return 0, corrupt("it ends before the means of %d buckets", q)
	}
	w.splits = slices.Grow(w.splits[:0], q)[:q]
	for i := range w.splits {
		mean := math.Float32frombits(binary.LittleEndian.Uint32(src[used+4*i:]))
		if !(mean > 0 && mean <= math.MaxFloat32) {
			return 0, corrupt("the mean of bucket %d is %v", i, mean)
		}
		w.splits[i] = mean
	}
	w.lay(*l, [2][]float32{w.splits[:l.buckets[negative]], w.splits[l.buckets[negative]:]})
	return used + 4*q, nil
}

// readLists sets the class of each value from the groups' lists.
func (w *work) readLists(src []byte) (used int, err error) {
	n := len(w.class)
	clear(w.class)
	w.keys = slices.Grow(w.keys[:0], n)[:n]
	left := n
	for c := 1; c < len(w.groups); c++ {
		values, k := binary.Uvarint(src[used:])
		if k <= 0 || values > uint64(left) {
			return 0, corrupt("group %d has more values than there are", c)
		}
		left -= int(values)
		used += k
		list := w.keys[:values]
		if k, err = (keys.Adaptive{}).Decode(list, src[used:]); err != nil {
			return 0, err
		}
		used += k
		for _, key := range list {
			if key >= uint64(n) || w.class[key] != 0 {
				return 0, corrupt("value %d of %d is in group %d, and there is none, or it is in another", key, n, c)
			}
			w.class[key] = uint16(c)
		}
	}
	return used, nil
}

// query sets y to the values that the sketches remember (section 4.2, query phase).
func (w *work) query(y []float32) error {
	for i, c := range w.class {
		if c == 0 {
			y[i] = 0
			continue
		}
		g := &w.groups[c]
		index := g.sketch.Query(uint64(i))
		if int(index) >= len(g.deliver) {
			return corrupt("value %d is in bucket %d of %d in group %d", i, index, len(g.deliver), c)
		}
		y[i] = g.deliver[index]
	}
	return nil
}
