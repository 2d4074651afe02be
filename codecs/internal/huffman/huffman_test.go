package huffman

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// SKCompress, Figure 7: items 0 to 3 that occur 6, 3, 2 and 1 times get the words 0, 10, 110 and 111, and 24 bits
// become 21.
func TestFigure7(t *testing.T) {
	counts := []uint32{6, 3, 2, 1}
	var c Code
	c.Init(counts)
	for s, want := range []word{{0b0, 1}, {0b10, 2}, {0b110, 3}, {0b111, 3}} {
		if c.words[s] != want {
			t.Errorf("item %d is %0*b, want %0*b", s, c.words[s].len, c.words[s].bits, want.len, want.bits)
		}
	}
	if got := c.Cost(counts); got != 21 {
		t.Errorf("%d bits, want 21", got)
	}
	if got := 12 * Fixed(4); got != 24 {
		t.Errorf("%d bits in words of one length, want 24", got)
	}
}

func TestFixed(t *testing.T) {
	for symbols, want := range map[int]uint{0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 256: 8, 257: 9, 1 << 16: 16} {
		if got := Fixed(symbols); got != want {
			t.Errorf("%d symbols: %d bits, want %d", symbols, got, want)
		}
	}
}

// drawn returns counts of many shapes: few and many symbols, even and steep, with and without absent ones.
func drawn(r *rand.Rand) []uint32 {
	counts := make([]uint32, 1+r.IntN(1<<r.IntN(10)))
	steep, absent := r.Float64()*2, r.Float64()
	for i := range counts {
		if r.Float64() >= absent {
			counts[i] = uint32(1e6/(1+steep*float64(i)*float64(i))) >> r.IntN(12)
		}
	}
	counts[r.IntN(len(counts))]++
	return counts
}

// No code of whole bits is shorter than Huffman's tree, which adds up the weights of its inner nodes, and words of one
// length are not shorter either. (But for a symbol that is alone, which has a word of no bits here.)
func TestOptimal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		counts := drawn(r)
		var c Code
		c.Init(counts)
		got, want := c.Cost(counts), treeCost(counts)
		if got != want {
			t.Fatalf("%d bits, want %d: %v", got, want, counts)
		}
		total := 0
		for _, n := range counts {
			total += int(n)
		}
		if fixed := total * int(Fixed(len(counts))); got > fixed {
			t.Fatalf("%d bits, and %d in words of one length: %v", got, fixed, counts)
		}
	}
}

// A weights is a heap of the weights of trees.
type weights []int

func (w weights) Len() int           { return len(w) }
func (w weights) Less(i, j int) bool { return w[i] < w[j] }
func (w weights) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *weights) Push(x any)        { *w = append(*w, x.(int)) }
func (w *weights) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// treeCost is SKCompress's section 4.3, step 2, word for word.
func treeCost(counts []uint32) int {
	var queue weights
	for _, n := range counts {
		if n > 0 {
			queue = append(queue, int(n))
		}
	}
	heap.Init(&queue)
	bits := 0
	for len(queue) > 1 {
		node := heap.Pop(&queue).(int) + heap.Pop(&queue).(int)
		bits += node
		heap.Push(&queue, node)
	}
	return bits
}

// roundTrip writes a table and symbols, and reads them back with another Code.
func roundTrip(t *testing.T, counts []uint32, symbols []int) {
	t.Helper()
	var c, back Code
	c.Init(counts)
	w := bitio.NewWriter(nil)
	c.WriteTable(&w)
	wrote := c.TableLen()
	for _, s := range symbols {
		c.Write(&w, s)
		wrote += int(c.Len(s))
	}
	b := w.Bytes()
	if len(b) != (wrote+7)/8 {
		t.Fatalf("%d bytes, but TableLen and Len add up to %d bits", len(b), wrote)
	}
	r := bitio.NewReader(b)
	if !back.ReadTable(&r, len(counts)) {
		t.Fatalf("the table of %v is refused: % x", counts, b)
	}
	if !slices.Equal(back.words, c.words) {
		t.Fatalf("of %v another code is read:\n%v\n%v", counts, back.words, c.words)
	}
	for i, s := range symbols {
		if got := back.Read(&r); got != s {
			t.Fatalf("symbol %d of %v is %d, want %d", i, counts, got, s)
		}
	}
	if used, ok := r.Close(); used != len(b) || !ok {
		t.Fatalf("%d of %d bytes are read, %v", used, len(b), ok)
	}
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		counts := drawn(r)
		var present, symbols []int
		for s, n := range counts {
			if n > 0 {
				present = append(present, s)
			}
		}
		for range 300 {
			symbols = append(symbols, present[r.IntN(len(present))])
		}
		roundTrip(t, counts, symbols)
	}
}

// All symbols that there can be, and the longest words: Fibonacci's numbers make a word of every length.
func TestEnds(t *testing.T) {
	even := slices.Repeat([]uint32{1}, MaxSymbols)
	roundTrip(t, even, []int{0, 1, 4711, MaxSymbols - 1})
	one := make([]uint32, MaxSymbols)
	one[40000] = 9
	roundTrip(t, one, []int{40000, 40000})

	fibonacci := []uint32{1, 1}
	for len(fibonacci) < 46 {
		n := len(fibonacci)
		fibonacci = append(fibonacci, fibonacci[n-1]+fibonacci[n-2])
	}
	var c Code
	c.Init(fibonacci)
	if got := c.Len(0); got != 45 {
		t.Errorf("the longest word has %d bits, want 45", got)
	}
	all := make([]int, len(fibonacci))
	for i := range all {
		all[i] = i
	}
	roundTrip(t, fibonacci, all)
}

func TestInitRefusesTooMuch(t *testing.T) {
	for name, counts := range map[string][]uint32{
		"symbols": make([]uint32, MaxSymbols+1),
		"counts":  slices.Repeat([]uint32{1 << 31}, 257),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("too many %s are taken", name)
				}
			}()
			new(Code).Init(counts)
		}()
	}
}

// The table of a code is short if its lengths hardly change: 32 symbols of one length take 32 bits.
func TestTableLen(t *testing.T) {
	for _, c := range []struct {
		counts []uint32
		want   int
	}{
		{slices.Repeat([]uint32{7}, 32), 32},
		{[]uint32{6, 3, 2, 1}, 3 + 3 + 3 + 1},              // 1, 2, 3, 3 from 2
		{append(make([]uint32, 255), 1), 3 + 15 + 3 + 6},   // a run of 255, a length of 0
		{append([]uint32{1, 1}, make([]uint32, 6)...), 14}, // a length of 1, the same, a run of 6
	} {
		var code Code
		code.Init(c.counts)
		if c.counts[0] == 1 {
			c.want = 3 + 6 + 1 + 3 + 5
		}
		if got := code.TableLen(); got != c.want {
			t.Errorf("%v: %d bits, want %d", c.counts, got, c.want)
		}
	}
}

func TestBadTables(t *testing.T) {
	for name, bits := range map[string][]byte{
		"a run beyond the last": {0b110_00011, 0b1_0000000}, // 7 of 4
		"an endless run":        {0b110_00000, 0, 0, 0, 0, 0},
		"no symbol":             {0b110_00100, 0b00000000},
		"words too many":        {0b101_0_0_0_00},            // four of one bit
		"words too few":         {0b100_0_0_0_00},            // four of three bits
		"a length below 0":      {0b101_101_10, 0b1_0000000}, // 1, 0, -1
		"two words of no bits":  {0b111_00000, 0b0_0_110_010, 0},
		"a word of 58 bits":     {0b111_11101, 0b0_0000000},
	} {
		var c Code
		r := bitio.NewReader(bits)
		if c.ReadTable(&r, 4) {
			t.Errorf("%s: taken as %v", name, c.words)
		}
	}
}

// FuzzReadTable: any bits are refused or a code, in which any bits are symbols that its own table brings back.
func FuzzReadTable(f *testing.F) {
	f.Add([]byte{0b100_0_0_0_00}, uint16(4))
	f.Add([]byte{0b101_100_10, 0b0_0_000000, 0xff, 0x12}, uint16(4))
	f.Add([]byte{0b110_00000, 0b00111111, 0b11_111000, 0b000_00000}, uint16(256))
	f.Fuzz(func(t *testing.T, b []byte, symbols uint16) {
		var c Code
		r := bitio.NewReader(b)
		if !c.ReadTable(&r, int(symbols)) {
			return
		}
		var read []int
		for range 20 {
			s := c.Read(&r)
			if s >= int(symbols) {
				t.Fatalf("symbol %d of %d", s, symbols)
			}
			read = append(read, s)
		}
		w := bitio.NewWriter(nil)
		c.WriteTable(&w)
		for _, s := range read {
			c.Write(&w, s)
		}
		again := bitio.NewReader(w.Bytes())
		var back Code
		if !back.ReadTable(&again, int(symbols)) || !slices.Equal(back.words, c.words) {
			t.Fatalf("the table of %v is not read back", c.words)
		}
		for i, want := range read {
			if got := back.Read(&again); got != want {
				t.Fatalf("symbol %d is %d, want %d", i, got, want)
			}
		}
	})
}

// FuzzRoundTrip: any counts make a code that is optimal and comes back.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{6, 3, 2, 1})
	f.Add([]byte{0, 0, 200, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		counts := make([]uint32, len(b))
		var present []int
		for i, n := range b {
			if counts[i] = uint32(n); n > 0 {
				counts[i] = 1 << (n % 32)
				present = append(present, i)
			}
		}
		if len(present) == 0 || len(b) > 256 {
			return
		}
		roundTrip(t, counts, present)
		var c Code
		c.Init(counts)
		if got, want := c.Cost(counts), treeCost(counts); got != want {
			t.Fatalf("%d bits, want %d", got, want)
		}
	})
}

func Benchmark(b *testing.B) {
	const n = 1 << 16
	r := rand.New(rand.NewPCG(3, 3))
	for _, symbols := range []int{32, 256, 4096} {
		counts, list := make([]uint32, symbols), make([]int, n)
		for i := range list {
			list[i] = min(int(r.ExpFloat64()*float64(symbols)/6), symbols-1)
			counts[list[i]]++
		}
		var c Code
		var buf []byte
		name := map[int]string{32: "32", 256: "256", 4096: "4096"}[symbols]
		b.Run("init/"+name, func(b *testing.B) {
			for b.Loop() {
				c.Init(counts)
			}
		})
		b.Run("write/"+name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				w := bitio.NewWriter(buf[:0])
				for _, s := range list {
					c.Write(&w, s)
				}
				buf = w.Bytes()
			}
		})
		b.Run("read/"+name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				r := bitio.NewReader(buf)
				for range n {
					c.Read(&r)
				}
			}
		})
	}
}
