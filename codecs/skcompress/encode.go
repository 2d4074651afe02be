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

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) { return encoder{m, n}, nil }

type encoder struct {
	method
	n int
}

func (e encoder) Append(dst []byte, src []float32) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("skcompress: %d values for an encoder of %d", len(src), e.n))
	}
	w := e.pool.Get().(*work)
	defer e.pool.Put(w)
	out := dst
	for from := 0; from < e.n; from += e.Config.Block {
		x := src[from:min(from+e.Config.Block, e.n)]
		found := survey(x)
		if largest := max(found[negative].max, found[positive].max); largest > math.MaxFloat32 {
			return dst, fmt.Errorf("%w: skcompress: values %d to %d are not finite", codecs.ErrUnsuited, from, from+len(x)-1)
		}
		out = e.appendBlock(out, w, found, x)
		if len(out)-len(dst) >= 4*e.n {
			return dst, fmt.Errorf("%w: skcompress: no gain: %d values are %d bytes", codecs.ErrUnsuited, e.n, len(out)-len(dst))
		}
	}
	return out, nil
}

// A found is the survey of a block's values of one sign: their number, and their least and largest magnitude. A NaN
// counts as larger than all.
type found struct {
	values   int
	min, max float32
}

// survey looks through x. Zeros count for neither sign.
func survey(x []float32) (of [2]found) {
	var values [2]int
	smallest, largest := [2]uint32{math.MaxUint32, math.MaxUint32}, [2]uint32{}
	for _, v := range x {
		bits := math.Float32bits(v)
		sign := 1 - bits>>31
		bits &^= 1 << 31
		largest[sign] = max(largest[sign], bits)
		bits-- // zero is beyond all
		smallest[sign] = min(smallest[sign], bits)
		if bits < math.MaxUint32 {
			values[sign]++
		}
	}
	for sign := range of {
		bits := largest[sign]
		if bits > math.Float32bits(math.MaxFloat32) {
			bits = math.Float32bits(float32(math.Inf(1)))
		}
		of[sign] = found{values[sign], math.Float32frombits(smallest[sign] + 1), math.Float32frombits(bits)}
	}
	return of
}

// share returns the number of buckets that each sign gets: of q as many as it occurs, rounded up, so that no bucket has
// more than d/q values; but not more than it has values. That can be q+1, where 0 is no q-quantile. In a joint sketch
// they are q.
func (m method) share(found [2]found) (of [2]int) {
	n, p := found[negative].values, found[positive].values
	if d := n + p; m.Mode == Joint && n > 0 && p > 0 {
		of[negative] = min(max(1, (m.Q*n+d/2)/d), m.Q-1)
		of[positive] = m.Q - of[negative]
	} else {
		of[negative], of[positive] = (m.Q*n+d-1)/d, (m.Q*p+d-1)/d
	}
	return [2]int{min(of[negative], n), min(of[positive], p)}
}

// saltOf returns a salt for a block, another one at every step of a training.
func saltOf(found [2]found) uint8 {
	h := uint64(0)
	for _, f := range found {
		for _, v := range [...]uint64{uint64(f.values), uint64(math.Float32bits(f.min)), uint64(math.Float32bits(f.max))} {
			low, high := hash(h ^ v)
			h = uint64(high)<<32 | uint64(low)
		}
	}
	return uint8(h)
}

// appendBlock appends a block that is finite.
func (m method) appendBlock(dst []byte, w *work, found [2]found, x []float32) []byte {
	if found[negative].values+found[positive].values == 0 {
		return append(dst, formZeros)
	}
	means := m.quantify(w, found, x)
	l := layout{buckets: [2]int{len(means[negative]), len(means[positive])}, per: m.perGroup(), joint: m.Mode == Joint}
	if l.joint && found[negative].values+found[positive].values < len(x) {
		l.zeros = 1
	}
	w.lay(l, means)
	w.classify(x, l.joint)
	w.count()

	form, salt := len(dst), saltOf(found)
	dst = append(dst, byte(formJoint+l.zeros), salt)
	for _, of := range means {
		dst = binary.AppendUvarint(dst, uint64(len(of)))
	}
	for _, of := range means {
		for _, mean := range of {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(mean))
		}
	}
	if !l.joint {
		dst[form] = m.tellGroups(w)
	}
	if dst[form] == formLists {
		dst = append(dst, w.lists...)
	}
	out := bitio.NewWriter(dst)
	if dst[form] == formMap {
		w.countClasses()
		w.writeCoded(&out, w.class)
	}
	w.sketches(m.Rows, m.Cols, salt)
	w.insert()
	w.fillEmpty(l.alphabet())
	w.writeCoded(&out, w.cells)
	return out.Bytes()
}

// quantify makes the buckets of both signs and returns their means (section 4.1, steps 1 to 3).
func (m method) quantify(w *work, found [2]found, x []float32) (means [2][]float32) {
	m.sketch(w, found, x)
	for sign, q := range m.share(found) {
		if q == 0 {
			continue
		}
		f := found[sign]
		w.splits = w.sketch[sign].Splits(w.splits[:0], q)
		w.splits[0], w.splits[q] = f.min, f.max
		w.buckets[sign].Init(w.splits)
		means[sign] = w.buckets[sign].Means()
	}
	return means
}

// sketch makes quantile sketches of the magnitudes of both signs, each of all values or of 2·m² of them: 2m buckets
// have m each, and so are equal within about 1/√m.
func (m method) sketch(w *work, found [2]found, x []float32) {
	var every, seen, next [2]int
	limit := 2 * m.M * m.M
	for sign, f := range found {
		if w.sketch[sign] == nil {
			w.sketch[sign] = NewQuantiles(m.M)
		}
		w.sketch[sign].reset()
		every[sign] = max(1, (f.values+limit-1)/limit)
		next[sign] = pick(0, every[sign])
	}
	for _, v := range x {
		bits := math.Float32bits(v)
		sign := 1 - bits>>31
		if v == 0 {
			continue
		}
		if seen[sign] == next[sign] {
			w.sketch[sign].Add(math.Float32frombits(bits &^ (1 << 31)))
			next[sign] = pick(seen[sign]/every[sign]+1, every[sign])
		}
		seen[sign]++
	}
}

// pick returns one of the numbers from i·every to (i+1)·every-1.
func pick(i, every int) int {
	random, _ := hash(uint64(i))
	return i*every + int(uint64(random)*uint64(every)>>32)
}

// classify sets the class and index of each value (section 4.1, steps 2 and 3).
func (w *work) classify(x []float32, joint bool) {
	w.class = slices.Grow(w.class[:0], len(x))[:len(x)]
	w.index = slices.Grow(w.index[:0], len(x))[:len(x)]
	var zero place
	if joint {
		zero.class = 1
	}
	for i, v := range x {
		bits := math.Float32bits(v)
		p := zero
		if v != 0 {
			sign := 1 - bits>>31
			p = w.places[sign][w.buckets[sign].Index(math.Float32frombits(bits&^(1<<31)))]
		}
		w.class[i], w.index[i] = p.class, p.index
	}
}

// tellGroups returns the form that says which value is in which group. If it is lists, they are in w.lists.
func (m method) tellGroups(w *work) byte {
	switch m.Mode {
	case Dense:
		return formMap
	case Sparse:
		w.appendLists()
		return formLists
	}
	w.countClasses()
	bits, _ := w.cost()
	mapped := (bits + 7) / 8
	w.appendLists()
	if len(w.lists) < mapped {
		return formLists
	}
	return formMap
}

func (w *work) countClasses() {
	w.numbers = w.numbers[:0]
	for i := range w.groups {
		w.numbers = append(w.numbers, w.groups[i].values)
	}
}

// appendLists makes w.lists: of each group, the positions of its values.
func (w *work) appendLists() {
	w.keys = slices.Grow(w.keys[:0], len(w.class))[:len(w.class)]
	// Counting sort: the positions of group after group.
	at := make([]int, len(w.groups))
	for c := 2; c < len(w.groups); c++ {
		at[c] = at[c-1] + int(w.groups[c-1].values)
	}
	for i, c := range w.class {
		if c == 0 {
			continue
		}
		w.keys[at[c]] = uint64(i)
		at[c]++
	}
	w.lists = w.lists[:0]
	for c := 1; c < len(w.groups); c++ {
		n := int(w.groups[c].values)
		w.lists = binary.AppendUvarint(w.lists, uint64(n))
		w.lists = keys.Adaptive{}.Append(w.lists, w.keys[at[c]-n:at[c]])
	}
}

// insert puts the index of each value into its group's sketch (section 4.2, insert phase).
func (w *work) insert() {
	for i, c := range w.class {
		if c != 0 {
			w.groups[c].sketch.Insert(uint64(i), w.index[i])
		}
	}
}

// fillEmpty counts the numbers in the cells, and sets empty cells, which no query meets, to the cheapest number: the
// commonest.
func (w *work) fillEmpty(alphabet int) {
	w.numbers = slices.Grow(w.numbers[:0], alphabet)[:alphabet]
	clear(w.numbers)
	empty := 0
	for _, v := range w.cells {
		if v == Empty {
			empty++
		} else {
			w.numbers[v]++
		}
	}
	if empty == 0 {
		return
	}
	commonest := slices.Index(w.numbers, slices.Max(w.numbers))
	w.numbers[commonest] += uint32(empty)
	for i, v := range w.cells {
		if v == Empty {
			w.cells[i] = uint16(commonest)
		}
	}
}
