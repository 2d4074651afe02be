package skcompress

import (
	"math"
	"slices"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
	"github.com/gradproxy/gradproxy/codecs/internal/huffman"
)

// The first byte of a block.
const (
	formZeros = iota
	formLists
	formMap
	formJoint
	formJointZeros
)

// Signs, as indexes.
const (
	negative = iota
	positive
)

// A work is the scratch memory of coding a block. Its contents do not matter between blocks.
type work struct {
	sketch  [2]*Quantiles // of each sign's magnitudes
	splits  []float32
	buckets [2]Buckets
	places  [2][]place // of each sign's buckets
	deliver []float32  // the values of indexes, group after group

	class   []uint16 // of each value: its group, from 1 on, or 0
	index   []uint16 // of each value: its bucket in its group
	groups  []group  // [class]
	cells   []uint16 // of all groups' sketches
	numbers []uint32 // the count of each number to be coded
	code    huffman.Code

	keys  []uint64
	lists []byte
}

// A place is the place of a bucket: its group, and its number in that group.
type place struct{ class, index uint16 }

// A group is some buckets of one sign, or, in a joint sketch, all of both.
type group struct {
	values  uint32 // their number
	sketch  MinMaxSketch
	deliver []float32 // the values that its buckets deliver
}

// A layout shares out the buckets of both signs to groups.
type layout struct {
	buckets [2]int
	per     int  // buckets in a group
	joint   bool // one group for all
	zeros   int  // numbers in the joint group that stand for 0: none or one
}

// groups returns the number of groups that each sign has.
func (l layout) groups(sign int) int { return (l.buckets[sign] + l.per - 1) / l.per }

// classes returns the number of classes that values can be in, 0 included.
func (l layout) classes() int {
	if l.joint {
		return 2
	}
	return 1 + l.groups(negative) + l.groups(positive)
}

// alphabet returns the number of different numbers that a cell can have.
func (l layout) alphabet() int {
	if l.joint {
		return l.zeros + l.buckets[negative] + l.buckets[positive]
	}
	return min(l.per, max(l.buckets[negative], l.buckets[positive]))
}

// place returns the place of a bucket.
func (l layout) place(sign, bucket int) place {
	if l.joint {
		both := min(l.buckets[negative], l.buckets[positive])
		if bucket < both {
			return place{1, uint16(l.zeros + 2*bucket + sign)}
		}
		return place{1, uint16(l.zeros + both + bucket)}
	}
	class := 1 + bucket/l.per
	if sign == positive {
		class += l.groups(negative)
	}
	return place{uint16(class), uint16(bucket % l.per)}
}

// lay makes w.places, and, from the means of both signs, w.groups with the values that they deliver.
func (w *work) lay(l layout, means [2][]float32) {
	w.groups = slices.Grow(w.groups[:0], l.classes())[:l.classes()]
	clear(w.groups)
	room := l.alphabet() * (l.classes() - 1)
	w.deliver = slices.Grow(w.deliver[:0], room)[:room]
	clear(w.deliver)
	for c := range w.groups[1:] {
		w.groups[1+c].deliver = w.deliver[c*l.alphabet() : c*l.alphabet()+l.zeros]
	}
	for sign, of := range means {
		w.places[sign] = w.places[sign][:0]
		for b, mean := range of {
			p := l.place(sign, b)
			w.places[sign] = append(w.places[sign], p)
			g := &w.groups[p.class]
			g.deliver = g.deliver[:max(len(g.deliver), int(p.index)+1)]
			if sign == negative {
				mean = -mean
			}
			g.deliver[p.index] = mean
		}
	}
}

// count sets the number of values of each group.
func (w *work) count() {
	for _, c := range w.class {
		w.groups[c].values++
	}
}

// sketches makes the groups' sketches, empty.
func (w *work) sketches(rows int, cols float64, salt uint8) {
	total := 0
	for i := range w.groups[1:] {
		total += rows * w.groups[1+i].columns(cols)
	}
	w.cells = slices.Grow(w.cells[:0], total)[:total]
	cells := w.cells
	for i := range w.groups[1:] {
		if g := &w.groups[1+i]; g.values > 0 {
			size := rows * g.columns(cols)
			g.sketch.init(rows, g.columns(cols), salt, cells[:size:size])
			cells = cells[size:]
		}
	}
}

// columns returns t, which is 0 for a group that has no values.
func (g *group) columns(cols float64) int { return int(math.Ceil(cols * float64(g.values))) }

// cost makes w.code for numbers that occur as w.numbers says. It returns the bits that coding them takes, and whether
// Huffman's code takes the fewest.
func (w *work) cost() (bits int, optimal bool) {
	w.code.Init(w.numbers)
	total := 0
	for _, n := range w.numbers {
		total += int(n)
	}
	fixed := 1 + total*int(huffman.Fixed(len(w.numbers)))
	short := 1 + w.code.TableLen() + w.code.Cost(w.numbers)
	return min(short, fixed), short < fixed
}

// writeCoded writes numbers. w.numbers must have the counts of them.
func (w *work) writeCoded(out *bitio.Writer, numbers []uint16) {
	if _, optimal := w.cost(); optimal {
		out.Write(1, 1)
		w.code.WriteTable(out)
		for _, v := range numbers {
			w.code.Write(out, int(v))
		}
		return
	}
	out.Write(0, 1)
	n := huffman.Fixed(len(w.numbers))
	for _, v := range numbers {
		out.Write(uint64(v), n)
	}
}

// readCoded reads numbers, and reports whether all are valid and below alphabet.
func (w *work) readCoded(in *bitio.Reader, numbers []uint16, alphabet int) bool {
	if in.Read(1) == 1 {
		if !w.code.ReadTable(in, alphabet) {
			return false
		}
		for i := range numbers {
			numbers[i] = uint16(w.code.Read(in))
		}
		return !in.Over()
	}
	n := huffman.Fixed(alphabet)
	largest := uint64(0)
	for i := range numbers {
		v := in.Read(n)
		largest = max(largest, v)
		numbers[i] = uint16(v)
	}
	return !in.Over() && largest < uint64(alphabet)
}
