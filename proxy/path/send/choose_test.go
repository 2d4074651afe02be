package send

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// gradient returns n float32 that look like a gradient.
func gradient(r *rand.Rand, n int) []byte {
	v, b := make([]float32, n), make([]byte, 4*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	tensor.FromFloat32(b, v, tensor.Float32)
	return b
}

// cachedValues is a peer's value cache in which no value is new twice.
type cachedValues struct {
	puts  []cache.Put
	known bool // the next value is one that the peer holds
	full  bool // there is no room
}

func (v *cachedValues) Put(_ frame.Tag, p cache.Put) (frame.ValueRef, bool, bool) {
	if v.full {
		return frame.ValueRef{}, false, false
	}
	p.Data = bytes.Clone(p.Data)
	v.puts = append(v.puts, p)
	return frame.ValueRef{Epoch: 1, ID: uint64(len(v.puts)), Size: len(p.Data)}, !v.known, true
}

func (v *cachedValues) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return nil, nil, errors.New("no value comes")
}

func (v *cachedValues) Predicts(string, uint64) bool { return true }

func (v *cachedValues) Ready() bool { return true }

func (v *cachedValues) PutParts(c frame.Tag, p cache.Put, cuts []int) (parts []frame.Part, ok bool) {
	r, _, ok := v.Put(c, p)
	for at := 0; at < len(p.Data); {
		end := len(p.Data)
		if len(cuts) > 0 {
			end, cuts = cuts[0], cuts[1:]
		}
		parts = append(parts, frame.Part{N: end - at, Value: r, From: at})
		at = end
	}
	return parts, ok
}

// planned plans a value and returns the plan's codec, or why it travels verbatim.
func planned(s *testSender, t tensor.Tensor) (p plan, codec string) {
	if !s.choose.value(&p, t, frame.MaxBlock) {
		return p, p.choice.Why.String()
	}
	return p, p.text
}

// The policy's choice counts only as far as the peer has the codec, the tensor has a past to compare it with, and there
// is a reference.
func TestChoice(t *testing.T) {
	lossy := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"}
	dense := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16}
	state := tensor.Tensor{Key: 2, Base: 2, Role: tensor.State, DType: tensor.Float32, Size: 1 << 16}
	again := tensor.Tensor{Key: 3, Base: 3, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16, Repeats: true, CRC32: true}
	unruled := again
	unruled.DType = tensor.Uint8
	closed, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.State}, Codec: "3lc(s=1.75,block=250)"}}, pathtest.Codec)
	if err != nil {
		t.Fatal(err)
	}
	shares := func(codecs ...string) func(s *testSender) {
		return func(s *testSender) { s.direction.conn.Values, s.direction.conn.PeerCodecs = new(cachedValues), codecs }
	}
	for name, c := range map[string]struct {
		tensor tensor.Tensor
		change func(s *testSender)
		want   string
		shared bool
	}{
		"it repeats":               {tensor: again, change: shares(), want: "3lc(s=1.75)"},
		"it repeats, exactly":      {tensor: unruled, change: shares(), want: "lossless", shared: true},
		"it repeats, to old peers": {tensor: again, change: shares("lossless", "3lc(s=1.75)", cache.Name, cache.Parts), want: "lossless", shared: true},
		"a gradient":               {tensor: dense, want: "3lc(s=1.75)"},
		"no room for its past":     {tensor: tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 33}, want: "lossless"},
		"the peer lacks it":        {tensor: dense, change: func(s *testSender) { s.direction.conn.PeerCodecs = []string{"lossless"} }, want: "lossless"},
		"the peer lacks all":       {tensor: dense, change: func(s *testSender) { s.direction.conn.PeerCodecs = []string{} }, want: "peer lacks codec"},
		"rows without an index":    {tensor: tensor.Tensor{Key: 1, Keys: 9, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16}, want: "lossless"},
		"weights, none are shared": {tensor: state, want: "lossless"},
		"weights that lose much": {tensor: state, change: func(s *testSender) {
			s.direction.conn.Values = new(cachedValues)
			s.env.Policy = func() policy.Policy { return closed }
		}, want: "3lc(s=1.75,block=250)", shared: true},
		"weights": {tensor: state, change: func(s *testSender) { s.direction.conn.Values = new(cachedValues) }, want: "lossless", shared: true},
	} {
		s := newTestSender(t, pathtest.Toy{}, lossy)
		if c.change != nil {
			c.change(s)
		}
		p, got := planned(s, c.tensor)
		if got != c.want || p.shared != c.shared {
			t.Errorf("%s travels by %s (%v), shared: %v; want %s, %v", name, got, p.choice.Why, p.shared, c.want, c.shared)
		}
		if whole := s.env.Lossless.Block(c.tensor.Size); c.shared && p.block != whole { // the blocks of values that the peer holds must not depend on the codec
			t.Errorf("%s is cut into blocks of %d bytes, not %d", name, p.block, whole)
		}
		if c.tensor.Size < 1<<20 && (p.dense != nil) != (c.want == "3lc(s=1.75)") {
			t.Errorf("%s: a past is kept: %v", name, p.dense != nil)
		}
	}
}

// Where no rule has a gradient lose something, the peer holds its values by their content, as it holds a second copy's,
// which must be exact.
func TestGradientsAgain(t *testing.T) {
	const n = 16 << 10
	for _, role := range []tensor.Role{tensor.Gradient, tensor.Exact} {
		values := new(cachedValues)
		s := newTestSender(t, pathtest.Toy{Role: role, Proof: tensor.ByWire, Base: true, Repeats: true, CRC32: true})
		s.direction.conn.Values = values
		if err := s.takes(pathtest.ToyPiece(1, 4*n, gradient(rand.New(rand.NewPCG(1, 2)), n))); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if k := kinds(t, s.sink.Sent()); len(values.puts) == 0 || k[frame.Ref] != len(values.puts) || k[frame.Block] != 0 {
			t.Errorf("%v: %d values are put, and %v leave", role, len(values.puts), k)
		}
	}
}

// A gradient travels exactly until it has earned trust, and so does a value that looks like something else. A gradient
// by the wire is trusted from its second value on. Where an optimizer or the app's own call proves the role nothing
// needs trust, and where no rule asks for loss all travel exactly.
func TestContentCheck(t *testing.T) {
	const n = 16 << 10
	lossy := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"}
	for name, c := range map[string]struct {
		proof tensor.Proof
		rules []policy.Rule
		exact func(step int) bool
	}{
		"by the user's word": {rules: []policy.Rule{lossy}, exact: func(step int) bool { return step < 4 || step >= 7 }},
		"by the wire":        {proof: tensor.ByWire, rules: []policy.Rule{lossy}, exact: func(step int) bool { return step < 1 || step >= 7 }},
		"by an optimizer":    {proof: tensor.ByUpdate, rules: []policy.Rule{lossy}, exact: func(int) bool { return false }},
		"by a call":          {proof: tensor.ByCall, rules: []policy.Rule{lossy}, exact: func(int) bool { return false }},
		"without a rule":     {proof: tensor.ByCall, exact: func(int) bool { return true }},
	} {
		s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: c.proof}, c.rules...)
		r := rand.New(rand.NewPCG(1, 2))
		for step := range 9 {
			v := gradient(r, n)
			if step == 7 { // weights, say
				for i := range n {
					copy(v[4*i:], []byte{0, 0, 0x7a, 0x44}) // 1000
				}
			}
			if exact := s.exactly(t, v); exact != c.exact(step) {
				t.Errorf("%s: value %d travels exactly: %v", name, step, exact)
			}
		}
	}
}

// A shared value leaves as a Ref, in the place of its block; where the cache has no room it travels by itself, exactly.
func TestSharedValues(t *testing.T) {
	const n = 4 << 10
	values := new(cachedValues)
	s := newTestSender(t, pathtest.Toy{Role: tensor.State, Base: true})
	s.direction.conn.Values = values
	v := make([]byte, 4*n)
	for range 2 {
		if err := s.takes(pathtest.ToyPiece(1, 4*n, v)); err != nil {
			t.Fatal(err)
		}
		values.known = true
	}
	s.Wait()
	blocks := len(values.puts)
	if k := kinds(t, s.sink.Sent()); k[frame.Ref] != blocks || blocks == 0 || k[frame.Block] != 0 {
		t.Fatalf("frames %v, and %d values were put", k, blocks)
	}
	put := values.puts[0]
	if put.Decl.Key != 2 || put.Role != tensor.State || put.Observe == nil || !bytes.Equal(put.Data, v[:len(put.Data)]) {
		t.Errorf("a value was put as %+v", put.Decl)
	}
	values.full = true
	s.sink = new(pathtest.Sink)
	s.direction.conn.Stream = s.sink
	last := pathtest.ToyPiece(1, 4*n, v)
	if err := s.takes(last); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, last) {
		t.Errorf("%d bytes arrive of %d that the cache had no room for, or they differ", len(got), len(last))
	}
	pathtest.Whole(t, s.env)
}

// noted is metrics that note the doubts.
type noted struct {
	path.NoMetrics
	doubted []string
	why     map[tensor.Reason]int
}

func (n *noted) Doubted(reason string)                               { n.doubted = append(n.doubted, reason) }
func (n *noted) FellBack(_ string, _ tensor.Role, why tensor.Reason) { n.why[why]++ }

// exactly sends a value and reports whether it arrives as it is, with nothing added.
func (s *testSender) exactly(t *testing.T, v []byte) bool {
	t.Helper()
	before := len(deliver(t, s.env, s.sink.Sent()))
	if err := s.takes(pathtest.ToyPiece(1, len(v), v)); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(deliver(t, s.env, s.sink.Sent())[before+8:], v)
}

// scaled returns a gradient times a factor.
func scaled(r *rand.Rand, n int, by float32) []byte {
	b, v := gradient(r, n), make([]float32, n)
	tensor.ToFloat32(v, b, tensor.Float32)
	for i := range v {
		v[i] *= by
	}
	tensor.FromFloat32(b, v, tensor.Float32)
	return b
}

// A value that is the first of its norm travels as it is, also where a residual flush is due, and the residual waits
// for the next.
func TestOutliersTakeNoResidual(t *testing.T) {
	const n, outlier = 16 << 10, 7
	s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)", FlushEvery: outlier + 1})
	r := rand.New(rand.NewPCG(3, 4))
	for step := range outlier + 2 {
		by := float32(1)
		if step == outlier {
			by = 3
		}
		if exact, want := s.exactly(t, scaled(r, n, by)), step < 4 || step == outlier; exact != want {
			t.Errorf("value %d travels as it is: %v, want %v", step, exact, want)
		}
	}
}

// With each value at which a flush is due, all that earlier values have lost arrives; before it a residual is left.
func TestFlushPaysAllThatIsOwed(t *testing.T) {
	const n, every, steps = 16 << 10, 5, 20
	s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByUpdate}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)", FlushEvery: every})
	r := rand.New(rand.NewPCG(3, 4))
	owed := make([]float64, n)
	for step := range steps {
		v := gradient(r, n)
		before := len(s.delivered(t))
		if err := s.takes(pathtest.ToyPiece(1, len(v), v)); err != nil {
			t.Fatal(err)
		}
		sent, arrived, largest := make([]float32, n), make([]float32, n), 0.0
		tensor.ToFloat32(sent, v, tensor.Float32)
		tensor.ToFloat32(arrived, s.delivered(t)[before+8:], tensor.Float32)
		for i := range owed {
			owed[i] += float64(sent[i]) - float64(arrived[i])
			largest = max(largest, math.Abs(owed[i]))
		}
		if paid := largest < 1e-4; paid != ((step+1)%every == 0) {
			t.Errorf("after value %d up to %g of an element is owed", step, largest)
		}
	}
}

// Once a sum of a job is found to be no gradient, nothing of the job loses anything on any of its connections, until
// all have ended; one log line and one count say so.
func TestDoubtedJobLosesNothing(t *testing.T) {
	const n = 16 << 10
	seen := &noted{why: map[tensor.Reason]int{}}
	var log bytes.Buffer
	s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"})
	s.env.Metrics = seen
	connect := func(job string) *testSender {
		x := &testSender{env: s.env, sink: new(pathtest.Sink)}
		_, b := pathtest.TCPPair(t)
		x.seen.Parser, _ = pathtest.Toy{Role: tensor.Gradient}.New(parser.Conn{})
		x.open(t, &path.Conn{Env: s.env, App: app.Plain(b), Stream: x.sink, Job: job, Log: slog.New(slog.NewTextHandler(&log, nil))})
		return x
	}
	r := rand.New(rand.NewPCG(5, 6))
	a, other := connect("job"), connect("another")
	for range 5 {
		a.exactly(t, gradient(r, n))
		other.exactly(t, gradient(r, n))
	}
	if a.exactly(t, gradient(r, n)) || other.exactly(t, gradient(r, n)) {
		t.Fatal("nothing is lost: the test shows nothing")
	}
	weights := scaled(r, n, 3)
	for i := range 2 {
		if !a.exactly(t, weights) {
			t.Errorf("average %d loses something", i)
		}
		if exact := a.exactly(t, gradient(r, n)); exact != (i == 1) {
			t.Errorf("the gradient after average %d travels as it is: %v", i, exact)
		}
	}
	for range 20 {
		if !a.exactly(t, gradient(r, n)) {
			t.Fatal("a gradient of the job loses something")
		}
	}
	if other.exactly(t, gradient(r, n)) {
		t.Error("another job loses nothing")
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "tensor=2 bytes=65536 reason=\"repeats") {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
	if len(seen.doubted) != 1 || seen.why[tensor.Doubted] != 21 {
		t.Errorf("counted: %v, and %d blocks", seen.doubted, seen.why[tensor.Doubted])
	}
	if err := a.End(); err != nil {
		t.Fatal(err)
	}
	again := connect("job")
	for range 5 {
		again.exactly(t, gradient(r, n))
	}
	if again.exactly(t, gradient(r, n)) {
		t.Error("the job has connected anew and loses nothing")
	}
}

// Blocks that are nearly zero travel exactly. The residual of earlier ones waits for the next value with loss, but not
// for ever.
func TestResidualWaitsForFewNearlyZeroBlocks(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"})
	x := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 14, Proof: tensor.ByWire, Part: 7}
	r := rand.New(rand.NewPCG(3, 4))
	settled := func(data []byte) *block {
		p, _ := planned(s, x)
		b := s.choose.block(&p, 0, x.Size, false)
		b.data = data
		if err := s.choose.settle(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	zeros := func() []byte {
		b := make([]byte, x.Size)
		copy(b[4<<10:], gradient(r, 16))
		return b
	}
	for range 2 {
		lossy := false
		for range 20 { // until the content check trusts the tensor
			lossy = settled(gradient(r, x.Size/4)).text == "int8"
		}
		if !lossy {
			t.Fatal("no value may lose something")
		}
		var flushes []int
		for i := range 4 * maxZeros { // the first are unlike the values before them
			b := settled(zeros())
			if b.text != "lossless" {
				t.Errorf("nearly zero block %d travels by %s", i, b.text)
			}
			_, flush := b.around.(*denseFlush)
			if flush {
				flushes = append(flushes, i)
			}
			result := tensor.Tensor{Part: x.Part, Whole: true, Size: x.Size}
			if _, job, _ := s.direction.conn.Sums.See(result, make([]byte, x.Size)); (job != nil) == flush {
				t.Errorf("nearly zero block %d, with its residual: %v, is compared with the result: %v", i, flush, job != nil)
			}
		}
		if len(flushes) < 2 || flushes[0] < maxZeros-1 || flushes[1]-flushes[0] != maxZeros {
			t.Errorf("the residual is added to the nearly zero blocks %v, want each %dth", flushes, maxZeros)
		}
	}
}

// A block that is too far behind travels exactly and with its residual, as long as the guard says, and then with loss
// again.
func TestGuardedBlockTravelsExactly(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc"})
	x := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 14}
	r := rand.New(rand.NewPCG(3, 4))
	settled := func() *block {
		p, _ := planned(s, x)
		b := s.choose.block(&p, 0, x.Size, false)
		b.data = gradient(r, x.Size/4)
		if err := s.choose.settle(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	lossy := false
	for range 20 { // until the content check trusts the tensor
		lossy = settled().text == "3lc"
	}
	if !lossy {
		t.Fatal("no value may lose something")
	}
	c, err := pathtest.Codec("topk(k=0.0003)")
	if err != nil {
		t.Fatal(err)
	}
	d := s.env.Residuals.Dense(residual.Owner("", ""), x, false)
	d.Lock()
	enc, err := feedback.NewControlled(c, x.DType, d.Part(0, x.Size), d.Control(0))
	for i := 0; i < 2000 && err == nil && d.Control(0).Ratio() < 30; i++ {
		_, err = enc.Append(nil, gradient(r, x.Size/4))
		if i > 100 && d.Control(0).Ratio() == 0 {
			break // it has acted
		}
	}
	d.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	b := settled()
	if _, flush := b.around.(*denseFlush); b.text != "lossless" || !flush {
		t.Errorf("the block travels by %s, with its residual: %v; want lossless, true", b.text, flush)
	}
	if line := s.env.Tensors.List()[0]; line.Guarded != 1 || line.Reason != tensor.Guarded.String() {
		t.Errorf("the table says %+v", line)
	}
	for range 15 {
		settled()
	}
	if b := settled(); b.text != "3lc" {
		t.Errorf("after 16 values the block travels by %s still", b.text)
	}
}

// numbered is a parser whose values are messages of sums.
type numbered struct {
	parser.Parser
	part  uint64 // of the newest value
	whole bool   // the next value is the result of the newest
}

func (p *numbered) Next(b []byte) (parser.Segment, error) {
	seg, err := p.Parser.Next(b)
	if t := &seg.Tensor; t.Size > 0 {
		if t.Off == 0 && !p.whole {
			p.part++
		}
		t.Part, t.Whole = p.part, p.whole
	}
	return seg, err
}

// The results of sums are compared with the values as they have arrived, before and after values lose something. Sums
// leave the job in peace, and one maximum, or one sum of the same of all ranks, ends all loss.
func TestResultsDoubtTheJob(t *testing.T) {
	const n = 16 << 10
	for name, c := range map[string]struct {
		at     int  // the value that is no summand of unlike ones
		same   bool // results go the same way, as among more than two ranks
		result func(x, own, y float32) float32
	}{
		"maximum while trust is earned": {1, false, func(x, _, y float32) float32 { return max(x, y) }},
		"maximum after loss":            {7, false, func(x, _, y float32) float32 { return max(x, y) }},
		"maximum of three ranks":        {6, true, func(x, _, y float32) float32 { return max(x, y) }},
		"the same of all ranks, early":  {2, false, func(x, own, _ float32) float32 { return x + own }},
		"the same of all ranks, late":   {8, false, func(x, own, _ float32) float32 { return x + own }},
	} {
		seen := &noted{why: map[tensor.Reason]int{}}
		s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"})
		s.env.Metrics = seen
		parts := &numbered{Parser: s.seen.Parser}
		s.seen.Parser = parts
		r := rand.New(rand.NewPCG(7, 8))
		for step := range c.at + 4 {
			own := gradient(r, n)
			before := len(deliver(t, s.env, s.sink.Sent()))
			exact := s.exactly(t, own)
			if want := step < 4 || step > c.at; exact != want {
				t.Errorf("%s: value %d travels exactly: %v", name, step, exact)
			}
			arrived := deliver(t, s.env, s.sink.Sent())[before+8:]
			x, o, y := make([]float32, n), make([]float32, n), make([]float32, n)
			tensor.ToFloat32(x, arrived, tensor.Float32)
			tensor.ToFloat32(o, own, tensor.Float32)
			tensor.ToFloat32(y, gradient(r, n), tensor.Float32)
			for i := range x {
				if y[i] += x[i]; step >= c.at {
					y[i] = c.result(x[i], o[i], y[i]-x[i])
				}
			}
			result := make([]byte, 4*n)
			tensor.FromFloat32(result, y, tensor.Float32)
			back := tensor.Tensor{Part: parts.part, Whole: true, Size: len(result)}
			if c.same {
				parts.whole = true
				if err := s.takes(pathtest.ToyPiece(2, len(result), result)); err != nil {
					t.Fatal(err)
				}
				if err := s.Wait(); err != nil {
					t.Fatal(err)
				}
				parts.whole = false
			} else {
				s.direction.conn.See(back, result[:1000])
				back.Off = 1000
				s.direction.conn.See(back, result[1000:])
			}
			if doubted := len(seen.doubted) > 0; doubted != (step >= c.at) {
				t.Errorf("%s: the job is doubted after value %d: %v", name, step, doubted)
			}
		}
	}
}

// A ring is a sender of gradients, and the other rank of its ring.
type ring struct {
	*testSender
	seen  *noted
	parts *numbered
	rnd   *rand.Rand
}

// ringLen is the number of elements of a ring's gradients.
const ringLen = 16 << 10

func newRing(t *testing.T, seed uint64) *ring {
	t.Helper()
	r := &ring{seen: &noted{why: map[tensor.Reason]int{}}, rnd: rand.New(rand.NewPCG(seed, seed))}
	r.testSender = newTestSender(t, pathtest.Toy{Role: tensor.Gradient}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "3lc(s=1.75)"})
	r.env.Metrics = r.seen
	r.parts = &numbered{Parser: r.testSender.seen.Parser}
	r.testSender.seen.Parser = r.parts
	return r
}

// add sends a gradient, and returns its sum with the other rank's as both ranks get it. From the fifth gradient on they
// lose something.
func (r *ring) add(t *testing.T, step int) (sum []float32) {
	t.Helper()
	before := len(deliver(t, r.env, r.sink.Sent()))
	if exact := r.exactly(t, gradient(r.rnd, ringLen)); exact != (step < 4) {
		t.Errorf("gradient %d travels exactly: %v", step, exact)
	}
	other := make([]float32, ringLen)
	sum = make([]float32, ringLen)
	tensor.ToFloat32(sum, deliver(t, r.env, r.sink.Sent())[before+8:], tensor.Float32)
	tensor.ToFloat32(other, gradient(r.rnd, ringLen), tensor.Float32)
	for i, x := range other {
		sum[i] += x
	}
	r.direction.conn.See(tensor.Tensor{Part: r.parts.part, Whole: true, Size: 4 * ringLen}, multiple(sum, 1))
	return sum
}

// multiple returns a message of k times the elements of v.
func multiple(v []float32, k float64) []byte {
	x := make([]float32, len(v))
	for i := range v {
		x[i] = float32(k * float64(v[i]))
	}
	b := make([]byte, 4*len(v))
	tensor.FromFloat32(b, x, tensor.Float32)
	return b
}

// A message that repeats the last result, as a maximum of gradients that all ranks have after their sum, is told before
// anything of it is lost, and ends all loss in the job. So is the mean of the result.
func TestMessagesThatRepeatTheResultLoseNothing(t *testing.T) {
	for _, ranks := range []float64{1, 2, 3} {
		r := newRing(t, 9)
		var sum []float32
		for step := range 7 {
			sum = r.add(t, step)
		}
		if len(r.seen.doubted) > 0 {
			t.Errorf("gradients doubt the job: %v", r.seen.doubted)
		}
		if !r.exactly(t, multiple(sum, 1/ranks)) {
			t.Errorf("the result over %v ranks has lost something", ranks)
		}
		if len(r.seen.doubted) != 1 || r.seen.doubted[0] != tensor.Result.String() {
			t.Errorf("the result over %v ranks: doubts %v", ranks, r.seen.doubted)
		}
		if !r.exactly(t, gradient(r.rnd, ringLen)) {
			t.Error("a gradient after it has lost something")
		}
	}
}

// An optimizer's momentum follows from the results of the sums before, and travels exactly. It does not doubt the job,
// as a gradient may follow from them too.
func TestMomentumLosesNothing(t *testing.T) {
	r := newRing(t, 11)
	momentum := make([]float32, ringLen)
	norm := 0.0 // squared
	for step := range 9 {
		norm = 0
		for i, x := range r.add(t, step) {
			momentum[i] = 0.7*momentum[i] + 0.3*x
			norm += float64(momentum[i]) * float64(momentum[i])
		}
	}
	if !r.exactly(t, multiple(momentum, math.Sqrt(ringLen/norm))) { // of a gradient's norm
		t.Error("momentum has lost something")
	}
	if r.exactly(t, gradient(r.rnd, ringLen)) {
		t.Error("the gradient after it travels exactly")
	}
	if len(r.seen.doubted) > 0 {
		t.Errorf("momentum doubts the job: %v", r.seen.doubted)
	}
}

// A result's blocks name the model that predicts them, to a peer that takes such values. To a peer of an earlier
// version they are values of the model's own tensor.
func TestResultsNameTheirModel(t *testing.T) {
	v := tensor.Tensor{Key: 1, Base: 2, Model: 3, Role: tensor.State, DType: tensor.Float32, Size: 1 << 12}
	for has, want := range map[string][2]uint64{cache.Models: {2, 3}, cache.Parts: {3, 3}} {
		s := newTestSender(t, pathtest.Toy{})
		s.direction.conn.Values, s.direction.conn.PeerCodecs = new(cachedValues), []string{"lossless", cache.Name, has}
		p, _ := planned(s, v)
		b := s.cut.choose.block(&p, 0, v.Size, false)
		if b == nil {
			t.Fatal("no block")
		}
		if got := [2]uint64{b.decl.Key, b.decl.Base}; got != want {
			t.Errorf("to a peer with %s it has key and base %d, want %d", has, got, want)
		}
	}
}
