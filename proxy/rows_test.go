package proxy

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// sparseToy is a protocol whose tensors are rows of arrays. A message is the array's number, the number of rows and the
// bytes of each (4 each, little-endian), the rows' ids (8 each), and the rows.
type sparseToy struct {
	lasting bool
	dtype   tensor.DType
}

func (sparseToy) String() string          { return "sparse" }
func (s sparseToy) Traits() parser.Traits { return parser.Traits{Reconnects: s.lasting} }
func (s sparseToy) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	return &sparseParser{dtype: s.dtype}, &sparseParser{dtype: s.dtype}
}

type sparseParser struct {
	dtype tensor.DType
	head  []byte
	ids   []byte
	t     tensor.Tensor // that is under way
	rows  tensor.Tensor // that follows it
}

func (p *sparseParser) Next(b []byte) (parser.Segment, error) {
	if p.t.Size == 0 {
		n := min(12-len(p.head), len(b))
		if p.head = append(p.head, b[:n]...); len(p.head) == 12 {
			keys := uint64(binary.LittleEndian.Uint32(p.head)) + 1000
			count, bytes := int(binary.LittleEndian.Uint32(p.head[4:])), int(binary.LittleEndian.Uint32(p.head[8:]))
			p.t = tensor.Tensor{Key: keys, Keys: keys, Role: tensor.Exact, DType: tensor.Uint64, Size: 8 * count, Hold: 8 * count}
			p.rows = tensor.Tensor{Keys: keys, Role: tensor.Gradient, DType: p.dtype, Size: count * bytes, Hold: count * bytes}
			p.head, p.ids = nil, nil
		}
		return parser.Segment{Len: n}, nil
	}
	n := min(p.t.Size-p.t.Off, len(b))
	seg := parser.Segment{Len: n, Tensor: p.t}
	p.t.Off += n
	p.t.Hold -= n
	if p.t.Index() {
		p.ids = append(p.ids, b[:n]...)
	}
	if p.t.Off == p.t.Size {
		if p.t, p.rows = p.rows, (tensor.Tensor{}); p.t.Size > 0 { // a tensor's key is another for each set of rows
			h := fnv.New64()
			h.Write(p.ids)
			p.t.Key = h.Sum64() | 1<<63
		}
	}
	return seg, nil
}

// sparseMessage returns a message with these rows.
func sparseMessage(array uint32, ids []uint64, rows []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, array)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ids)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(rows)/len(ids)))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return append(b, rows...)
}

// newSparsePair returns a pair that chooses a real codec for rows.
func newSparsePair(t testing.TB, protocol sparseToy, rule policy.Rule) *pair {
	t.Helper()
	p := newPairWith(t, withRealLoss, []parser.Protocol{protocol})
	rule.Roles = []tensor.Role{tensor.Gradient}
	chosen, err := policy.New([]policy.Rule{rule}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	settings := *p.near.settings.Load()
	settings.Policy = chosen
	p.near.Apply(settings)
	return p
}

const (
	sparseArray = 3
	sparseKeys  = sparseArray + 1000
	arrayRows   = 500
)

// A sparseRun has the sums of the values that were sent and delivered of an array, by row and element.
type sparseRun struct {
	t              *testing.T
	dtype          tensor.DType
	width          int
	mu             sync.Mutex
	sent, received map[uint64][]float64
	largest        float64
	values         int
	exact          []bool // by value
}

func newSparseRun(t *testing.T, d tensor.DType, width int) *sparseRun {
	return &sparseRun{t: t, dtype: d, width: width, sent: map[uint64][]float64{}, received: map[uint64][]float64{}}
}

// draw returns the ids of n of the array's rows. Low ids come often.
func (l *sparseRun) draw(r *rand.Rand, n int) []uint64 {
	ids := map[uint64]bool{}
	for len(ids) < n {
		ids[uint64(arrayRows*math.Pow(r.Float64(), 3))<<40] = true
	}
	var list []uint64
	for id := range ids {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// add adds rows to sums.
func (l *sparseRun) add(sums map[uint64][]float64, ids []uint64, rows []byte) {
	v := make([]float32, len(ids)*l.width)
	tensor.ToFloat32(v, rows, l.dtype)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range ids {
		if sums[id] == nil {
			sums[id] = make([]float64, l.width)
		}
		for j := range l.width {
			sums[id][j] += float64(v[i*l.width+j])
			l.largest = max(l.largest, math.Abs(float64(v[i*l.width+j])))
		}
	}
}

// rows returns values for so many rows.
func (l *sparseRun) rows(r *rand.Rand, n int) []byte {
	v := make([]float32, n*l.width)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	b := make([]byte, len(v)*l.dtype.Size())
	tensor.FromFloat32(b, v, l.dtype)
	return b
}

// step sends values for rows and reads the ones that arrive.
func (l *sparseRun) step(client io.Writer, server io.Reader, ids []uint64, rows []byte) {
	message := sparseMessage(sparseArray, ids, rows)
	got := carry(l.t, client, server, message)
	head := len(message) - len(rows)
	if !bytes.Equal(got[:head], message[:head]) {
		l.t.Error("head or ids were changed")
	}
	l.add(l.sent, ids, rows)
	l.add(l.received, ids, got[head:])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values++
	l.exact = append(l.exact, bytes.Equal(got, message))
}

// send sends that many values of random rows over a connection of their own.
func (l *sparseRun) send(p *pair, r *rand.Rand, count int) {
	l.t.Helper()
	client, server := p.connect(l.t)
	defer client.Close()
	defer server.Close()
	for range count {
		ids := l.draw(r, 1+r.IntN(100))
		l.step(client, server, ids, l.rows(r, len(ids)))
	}
}

// residuals returns the residuals that are not zero, by row.
func (l *sparseRun) residuals(p *Proxy) map[uint64][]float32 {
	found := map[uint64][]float32{}
	if _, arrays, _ := p.Residuals().Held(); arrays == 0 {
		return found
	}
	l.mu.Lock()
	list := slices.Collect(maps.Keys(l.sent))
	l.mu.Unlock()
	ids := residual.IDs{Width: 8}
	for _, id := range list {
		ids.Bytes = binary.LittleEndian.AppendUint64(ids.Bytes, id)
	}
	m := p.Residuals().Rows(residual.Owner("", "far"), tensor.Tensor{Keys: sparseKeys, DType: l.dtype}, l.width, true)
	all := make([]float32, len(list)*l.width)
	m.Take(ids, all)
	for i, id := range list {
		row := all[i*l.width : (i+1)*l.width]
		if slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
			found[id] = slices.Clone(row)
		}
	}
	p.Residuals().GiveRows(m, ids, all)
	return found
}

// conserved checks, for each row, that the sum of the values sent is the sum of the values received and the residual.
func (l *sparseRun) conserved(p *Proxy) {
	l.t.Helper()
	limit := float64(l.values) * max(l.largest, 1) * 0x1p-21
	left := l.residuals(p)
	for id, sent := range l.sent {
		for j, x := range sent {
			lacks := x - l.received[id][j]
			if left[id] != nil {
				lacks -= float64(left[id][j])
			}
			if math.Abs(lacks) > limit {
				l.t.Fatalf("row %#x, element %d: of %v, %v was received and the residual is %v: %v is lost", id, j, x, l.received[id][j], left[id], lacks)
			}
		}
	}
}

// lossy returns how many of the values were not exact.
func (l *sparseRun) lossy() (n int) {
	for _, exact := range l.exact {
		if !exact {
			n++
		}
	}
	return n
}

// Rows change from message to message, over connections that come and go, each message of several blocks: the loss of a
// row is made up for when it comes again. The first value is exact.
func TestLossOfRowsIsMadeUp(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.Float64} {
		for _, codec := range []string{"3lc(s=1.75,block=250)", "int4(block=32)"} {
			t.Run(d.String()+"/"+codec, func(t *testing.T) {
				p := newSparsePair(t, sparseToy{lasting: true, dtype: d}, policy.Rule{Codec: codec})
				l := newSparseRun(t, d, 24)
				r := rand.New(rand.NewPCG(1, 2))
				for range 4 {
					l.send(p, r, 60)
					l.conserved(p.near)
				}
				if !l.exact[0] || l.lossy() < 200 {
					t.Errorf("the first value is exact: %v; %d of %d lost something, want nearly all", l.exact[0], l.lossy(), l.values)
				}
				if n, _, _ := p.near.Residuals().Held(); n != 0 {
					t.Errorf("%d sets of rows are remembered as tensors", n)
				}
			})
		}
	}
}

// Messages follow each other without waiting, with the same rows among them, over several connections of one worker.
func TestRowsOfSeveralConnections(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "3lc(s=1.75,block=250)"})
	l := newSparseRun(t, tensor.Float32, 24)
	l.send(p, rand.New(rand.NewPCG(3, 3)), 1)
	var all sync.WaitGroup
	for i := range 4 {
		client, server := p.connect(t)
		r := rand.New(rand.NewPCG(3, uint64(i)))
		var stream []byte
		var sets [][]uint64
		for range 100 {
			ids := l.draw(r, 1+r.IntN(100))
			rows := l.rows(r, len(ids))
			sets = append(sets, ids)
			l.add(l.sent, ids, rows)
			stream = append(stream, sparseMessage(sparseArray, ids, rows)...)
		}
		all.Go(func() { client.Write(stream) })
		all.Go(func() {
			for _, ids := range sets {
				got := make([]byte, 12+len(ids)*(8+4*l.width))
				if _, err := io.ReadFull(server, got); err != nil {
					t.Error(err)
					return
				}
				l.add(l.received, ids, got[12+8*len(ids):])
			}
		})
	}
	all.Wait()
	l.values += 400
	l.conserved(p.near)
	if len(l.residuals(p.near)) == 0 {
		t.Error("there is no residual: the test shows nothing")
	}
}

// The delivered values do not depend on how fast they come: a row that comes again finds the residual of the message
// before, though that may still have been under way.
func TestRowsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	l := newSparseRun(t, tensor.Float32, 24)
	var messages [][]byte
	for range 200 {
		ids := l.draw(r, 100)
		messages = append(messages, sparseMessage(sparseArray, ids, l.rows(r, len(ids))))
	}
	var delivered [2][]byte
	for i, at := range []int{1, len(messages)} {
		p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "3lc(s=1.75,block=2500)"})
		client, server := p.connect(t)
		for some := range slices.Chunk(messages, at) {
			delivered[i] = append(delivered[i], carry(t, client, server, slices.Concat(some...))...)
		}
	}
	if !bytes.Equal(delivered[0], delivered[1]) {
		t.Error("messages that follow each other at once are delivered otherwise than one after another")
	}
}

// Without residuals the same run does lose: the tests above can fail.
func TestRowsWithoutFeedbackAreLost(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "3lc(s=1.75)", NoFeedback: true})
	l := newSparseRun(t, tensor.Float32, 24)
	l.send(p, rand.New(rand.NewPCG(5, 6)), 50)
	if n := len(l.residuals(p.near)); n != 0 || l.lossy() < 40 {
		t.Errorf("%d rows have residuals, %d values lost something", n, l.lossy())
	}
	largest := 0.0
	for id, sent := range l.sent {
		for j, x := range sent {
			largest = max(largest, math.Abs(x-l.received[id][j]))
		}
	}
	if largest < 1 {
		t.Errorf("at most %v is missing", largest)
	}
}

// Every fifth value flushes the residuals of its rows, and of no others.
func TestFlushOfRows(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "3lc(s=1.75,block=250)", FlushEvery: 5})
	l := newSparseRun(t, tensor.Float32, 24)
	r := rand.New(rand.NewPCG(7, 8))
	client, server := p.connect(t)
	for value := 1; value <= 40; value++ {
		ids := l.draw(r, 40)
		before := l.residuals(p.near)
		l.step(client, server, ids, l.rows(r, len(ids)))
		l.conserved(p.near)
		if value%5 != 0 {
			continue
		}
		after, others := l.residuals(p.near), 0
		for id, left := range before {
			inMessage := slices.Contains(ids, id)
			if !inMessage {
				others++
			}
			if after[id] == nil {
				after[id] = make([]float32, l.width)
			}
			for j := range left {
				if x := after[id][j]; inMessage && math.Abs(float64(x)) > 1e-5 || !inMessage && x != left[j] {
					t.Fatalf("value %d: row %#x had the residual %v and has %v, in the message: %v", value, id, left[j], x, inMessage)
				}
			}
		}
		if others == 0 {
			t.Fatal("no other row has a residual: the test shows nothing")
		}
	}
}

// A block that does not look like the array's others travels exactly, and its residuals wait.
func TestStrangeRowsTravelExactly(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "int4"})
	l := newSparseRun(t, tensor.Float32, 24)
	r := rand.New(rand.NewPCG(9, 10))
	client, server := p.connect(t)
	ids := l.draw(r, 50)
	for range 5 {
		l.step(client, server, ids, l.rows(r, len(ids)))
	}
	left := l.residuals(p.near)
	strange := make([]float32, len(ids)*l.width)
	for i := range strange {
		strange[i] = 1000 * float32(r.NormFloat64())
	}
	rows := l.rows(r, len(ids))
	tensor.FromFloat32(rows, strange, tensor.Float32)
	l.step(client, server, ids, rows)
	for id, x := range l.residuals(p.near) {
		if !slices.Equal(x, left[id]) {
			t.Fatal("an exact value has changed a residual")
		}
	}
	nan := slices.Clone(rows)
	binary.LittleEndian.PutUint32(nan, math.Float32bits(float32(math.NaN())))
	if got := carry(t, client, server, sparseMessage(sparseArray, ids, nan)); !bytes.Equal(got, sparseMessage(sparseArray, ids, nan)) {
		t.Error("a NaN was changed")
	}
	for range 10 {
		l.step(client, server, ids, l.rows(r, len(ids)))
	}
	if want := []bool{true, false, false, false, false, true}; !slices.Equal(l.exact[:6], want) || !l.exact[6] || l.exact[len(l.exact)-1] {
		t.Errorf("exact values: %v", l.exact)
	}
	l.conserved(p.near)
}

// Where it is not known which rows come, they travel exactly.
func TestUnknownRowsTravelExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for name, ids := range map[string][]uint64{"twice": {1, 2, 2, 3}, "descending": {9, 8, 7, 6}} {
		p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "int4"})
		l := newSparseRun(t, tensor.Float32, 100)
		client, server := p.connect(t)
		for range 4 {
			l.step(client, server, ids, l.rows(r, len(ids)))
		}
		if _, arrays, _ := p.near.Residuals().Held(); l.lossy() != 0 || arrays != 0 {
			t.Errorf("%s: %d of %d values lost something", name, l.lossy(), l.values)
		}
	}
}

// The table of tensors has one row for an array and one for its index, whatever their rows are.
func TestTensorTableDoesNotGrowWithRows(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "int4"})
	l := newSparseRun(t, tensor.Float32, 24)
	l.send(p, rand.New(rand.NewPCG(13, 14)), 100)
	table := p.near.Tensors()
	if len(table) != 2 || table[0].Key != sparseKeys || table[0].Values != 100 || table[0].Bytes == 0 {
		t.Errorf("the table is %+v, want two rows", table)
	}
}

// Rows of a protocol that never connects again are forgotten with its connection.
func TestRowsEndWithTheirConnection(t *testing.T) {
	p := newSparsePair(t, sparseToy{dtype: tensor.Float32}, policy.Rule{Codec: "int4"})
	l := newSparseRun(t, tensor.Float32, 24)
	l.send(p, rand.New(rand.NewPCG(15, 16)), 20)
	p.near.Drain(t.Context())
	if _, n, bytes := p.near.Residuals().Held(); n != 0 || bytes != 0 {
		t.Errorf("%d arrays and %d bytes are remembered", n, bytes)
	}
	if n := p.near.Residuals().Changes(); n != 0 {
		t.Errorf("%d changes of what is saved", n)
	}
}

// Residuals of rows outlive the process, and the file has all of them.
func TestRowsAreSaved(t *testing.T) {
	protocol, rule := sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "3lc(s=1.75,block=250)"}
	p, q := newSparsePair(t, protocol, rule), newSparsePair(t, protocol, rule)
	l := newSparseRun(t, tensor.Float32, 24)
	r := rand.New(rand.NewPCG(17, 18))
	l.send(p, r, 60)
	dense := p.near.Residuals().Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true)
	dense.Part(0, 4000)[7] = 3
	var file bytes.Buffer
	if err := p.near.Residuals().Save(&file); err != nil {
		t.Fatal(err)
	}
	if err := q.near.Residuals().Load(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	l.conserved(q.near)
	if x := q.near.Residuals().Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true).Part(0, 4000)[7]; x != 3 {
		t.Errorf("the residual of a dense tensor is %v, want 3", x)
	}
	l.send(q, r, 60)
	l.conserved(q.near)
	for range 300 { // damaged in any way it is refused
		bad := bytes.Clone(file.Bytes())
		if r.IntN(2) == 0 {
			bad = bad[:r.IntN(len(bad))]
		} else {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		fresh := residual.New(1<<30, residual.Events{})
		err := fresh.Load(bytes.NewReader(bad))
		if _, _, n := fresh.Held(); err == nil || n != 0 {
			t.Fatalf("a damaged file: %v, %d bytes are remembered", err, n)
		}
	}
	small := residual.New(20<<10, residual.Events{})
	err := small.Load(bytes.NewReader(file.Bytes()))
	if _, _, n := small.Held(); err == nil || n != 0 {
		t.Errorf("more rows than may be remembered: %v", err)
	}
}

// A codec that falls too far behind with rows that come again and again has values travel exactly with the residuals of
// their rows, 16 of them at first, counted and said as of any tensor; then it is used again.
func TestGuardOfRows(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "topk(k=0.001)"})
	l := newSparseRun(t, tensor.Float32, 24)
	r := rand.New(rand.NewPCG(9, 10))
	client, server := p.connect(t)
	var ids []uint64
	for id := range uint64(60) {
		ids = append(ids, id)
	}
	line := func() TensorInfo {
		for _, line := range p.near.Tensors() {
			if line.Role == tensor.Gradient.String() {
				return line
			}
		}
		t.Fatal("no gradients")
		return TensorInfo{}
	}
	v := make([]float32, len(ids)*l.width)
	settled, again := 0, 0 // values that left no residual, and values after them that did
	for value := 0; value < 400 && again < 5; value++ {
		for i := range v {
			v[i] = float32(0.3 + r.NormFloat64()) // a gradient that keeps its direction
		}
		rows := make([]byte, 4*len(v))
		tensor.FromFloat32(rows, v, tensor.Float32)
		l.step(client, server, ids, rows)
		left := 0.0
		for _, row := range l.residuals(p.near) {
			for _, x := range row {
				left = max(left, math.Abs(float64(x)))
			}
		}
		switch {
		case value > 20 && left < 1e-5:
			settled++
		case settled > 0:
			again++
		}
	}
	l.conserved(p.near)
	if settled != 16 || again != 5 {
		t.Errorf("%d values left no residual, and %d after them did; want 16 and 5", settled, again)
	}
	if got := line(); got.Guarded != 16 {
		t.Errorf("the table says %+v", got)
	}
}
