package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// realLoss knows the real lossy codecs, and the test's others.
func realLoss(text string) (codecs.Codec, error) {
	if c, err := all.New(text); err == nil && text != "lossless" {
		return c, nil
	}
	return testCodecs(text)
}

// newRealPair returns a pair that chooses a real codec for a tensor that outlives its connections.
func newRealPair(t *testing.T, codec string) *pair {
	p := newPair(t, []parser.Protocol{gradients{lasting: true}})
	p.near.Codecs, p.far.Codecs = realLoss, realLoss
	p.choose(t, codec)
	return p
}

// choose reloads the near proxy with another codec.
func (p *pair) choose(t *testing.T, codec string) {
	t.Helper()
	chosen, err := policy.New([]policy.Rule{{Codec: codec}}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	settings := *p.near.settings.Load()
	settings.Policy = chosen
	p.near.Apply(settings)
}

// send sends that many values over a connection of their own.
func (l *lossyRun) send(p *pair, count int) {
	l.t.Helper()
	client, server := p.connect(l.t)
	defer client.Close()
	defer server.Close()
	for range count {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
}

// owed returns the norm of what is owed.
func (l *lossyRun) owed(p *Proxy) (norm float64) {
	l.t.Helper()
	m := p.memories.lasting()
	if len(m) != 1 {
		l.t.Fatalf("%d tensors are remembered, want 1", len(m))
	}
	m[0].mu.Lock()
	defer m[0].mu.Unlock()
	for _, x := range m[0].residual {
		norm += float64(x) * float64(x)
	}
	return math.Sqrt(norm)
}

// What was sent is what arrived and what is owed still: over two connections, a reload with another codec, a save, and
// two proxies in the place of the first, with another codec again.
func TestResidualsOutliveCodecsConnectionsAndProxies(t *testing.T) {
	p := newRealPair(t, "3lc(s=1.75)")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(5, 6))}
	l.send(p, 20)
	l.conserved(p.near)
	coarse := l.owed(p.near)
	p.choose(t, "int8")
	l.send(p, 1)
	if l.exact[20] || l.owed(p.near) >= coarse/20 { // the first by the new codec already makes up for what the old one owed
		t.Errorf("after a change of codec %v is owed, before it %v", l.owed(p.near), coarse)
	}
	p.choose(t, "int4(block=32)")
	l.send(p, 5)
	p.choose(t, "3lc")
	l.send(p, 5)
	l.conserved(p.near)

	var file bytes.Buffer
	if err := p.near.SaveResiduals(&file); err != nil {
		t.Fatal(err)
	}
	owed := l.owed(p.near)
	q := newRealPair(t, "int4")
	if err := q.near.LoadResiduals(&file); err != nil {
		t.Fatal(err)
	}
	if got := l.owed(q.near); got != owed || owed == 0 {
		t.Fatalf("%v is owed after loading, want %v", got, owed)
	}
	l.conserved(q.near)
	n := len(l.exact)
	l.send(q, 20)
	if !l.exact[n] || l.exact[n+1] {
		t.Errorf("exact values after loading: %v, want the first and no other", l.exact[n:])
	}
	l.conserved(q.near)

	q.choose(t, "lossless") // what is owed waits while the tensor travels exactly
	owed = l.owed(q.near)
	l.send(q, 3)
	if got := l.owed(q.near); got != owed {
		t.Errorf("%v is owed after exact values, %v before", got, owed)
	}
	l.conserved(q.near)
}

// Without what was saved the same run does lose: the test above can fail.
func TestWithoutSavingIsLost(t *testing.T) {
	p := newRealPair(t, "3lc(s=1.75)")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(5, 6))}
	l.send(p, 20)
	q := newRealPair(t, "3lc(s=1.75)")
	l.send(q, 20)
	m := q.near.memories.lasting()[0]
	for i, owed := range m.residual {
		if math.Abs(l.sent[i]-l.received[i]-float64(owed)) > 0.1 {
			return
		}
	}
	t.Error("a proxy was replaced, nothing was saved, and nothing is missing")
}

// What does not outlive its connection is not saved.
func TestOnlyWhatLastsIsSaved(t *testing.T) {
	p := newPair(t, []parser.Protocol{gradients{}}, policy.Rule{Codec: "halves"})
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(7, 8))}
	client, server := p.connect(t)
	for range 5 {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
	var file bytes.Buffer
	if err := p.near.SaveResiduals(&file); err != nil || file.Len() != len(savedMagic)+5 {
		t.Errorf("%d bytes were saved, %v", file.Len(), err)
	}
	if n := p.near.ResidualChanges(); n != 0 {
		t.Errorf("%d changes are counted", n)
	}
}

// Changes are counted as long as there are any, and not by looking.
func TestResidualChanges(t *testing.T) {
	p := newRealPair(t, "int8")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(9, 10))}
	l.send(p, 2) // the second is the first that loses something
	before := p.near.ResidualChanges()
	var file bytes.Buffer
	if err := p.near.SaveResiduals(&file); err != nil || before == 0 {
		t.Fatalf("%d changes, %v", before, err)
	}
	if n := p.near.ResidualChanges(); n != before {
		t.Errorf("a save counts as %d changes", n-before)
	}
	l.send(p, 1)
	if p.near.ResidualChanges() == before {
		t.Error("another value counts as no change")
	}
}

// saved returns a file with that many tensors of 1000 float32.
func saved(t *testing.T, tensors int) []byte {
	t.Helper()
	p := newTestProxy(t)
	for key := range tensors {
		m := p.memories.of("job", tensor.Tensor{Key: uint64(key) + 1, DType: tensor.Float32, Size: 4000}, true)
		m.residual[key] = 1
	}
	p.memories.of("job", tensor.Tensor{Key: 99, DType: tensor.Float32, Size: 4000}, true) // is owed nothing
	var file bytes.Buffer
	if err := p.SaveResiduals(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A file that is damaged in any way is refused whole.
func TestDamagedResidualsAreRefused(t *testing.T) {
	good := saved(t, 3)
	if want := 3 * 4000; len(good) < want || len(good) > want+100 {
		t.Errorf("the file has %d bytes, want little more than %d", len(good), want)
	}
	r := rand.New(rand.NewPCG(11, 12))
	p := newTestProxy(t)
	for range 500 {
		bad := bytes.Clone(good)
		if r.IntN(2) == 0 {
			bad = bad[:r.IntN(len(bad))]
		} else {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		if err := p.LoadResiduals(bytes.NewReader(bad)); !errors.Is(err, ErrSaved) {
			t.Fatalf("a damaged file: %v", err)
		}
		if p.memories.recent.Len() != 0 || p.memories.bytes != 0 {
			t.Fatal("a damaged file was loaded in part")
		}
	}
	if err := p.LoadResiduals(bytes.NewReader(good)); err != nil || p.memories.recent.Len() != 3 {
		t.Fatalf("%d tensors of the good file, %v", p.memories.recent.Len(), err)
	}
}

// A file that is right but not sensible is refused as well: more than may be remembered, of another version, with a
// residual that would never go away.
func TestForeignResidualsAreRefused(t *testing.T) {
	seal := func(b []byte) []byte {
		b = append(slices.Clone(b[:len(b)-5]), 0)
		return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	later := saved(t, 1)
	later[len(savedMagic)-1] = '2'
	infinite := saved(t, 1)
	binary.LittleEndian.PutUint32(infinite[len(infinite)-9:], math.Float32bits(float32(math.Inf(1))))
	huge := append([]byte(savedMagic), 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32))
	huge = append(binary.AppendUvarint(huge, 1<<60), 0, 0, 0, 0, 0)
	for name, x := range map[string]struct {
		file  []byte
		limit int64
		says  string
	}{
		"text":     {[]byte("residuals, they say"), 1 << 30, "not a file of residuals of this version"},
		"empty":    {nil, 1 << 30, "not a file of residuals of this version"},
		"later":    {seal(later), 1 << 30, "not a file of residuals of this version"},
		"too much": {saved(t, 3), 2 * cost(tensor.Float32, 4000), "tensor 3 is more than may be remembered"},
		"huge":     {seal(huge), 1 << 30, "tensor 1 is more than may be remembered"},
		"infinite": {seal(infinite), 1 << 30, "tensor 1 is damaged"},
	} {
		p := newTestProxy(t)
		p.memories.limit = x.limit
		err := p.LoadResiduals(bytes.NewReader(x.file))
		if !errors.Is(err, ErrSaved) || !strings.HasSuffix(err.Error(), x.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an ErrSaved that says %q", name, err, x.says)
		}
		if p.memories.recent.Len() != 0 {
			t.Errorf("%s: it was loaded", name)
		}
	}
}

// Whatever a file says, loading it takes no more memory than is allowed, and leaves all or nothing.
func FuzzLoadResiduals(f *testing.F) {
	const limit = 1 << 20
	p := newTestProxy(f)
	m := p.memories.of("job", tensor.Tensor{Key: 7, DType: tensor.BFloat16, Size: 64}, true)
	m.residual[3] = 1
	rows := p.memories.rowsOf("job", tensor.Tensor{Keys: 8, DType: tensor.Float16}, 3, true)
	rows.give(idsOf(5, 6), []float32{1, 2, 3, 4, 5, 6})
	var file bytes.Buffer
	if err := p.SaveResiduals(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes()[len(savedMagic) : file.Len()-4])
	f.Add([]byte{2, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	f.Add([]byte{1, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte(savedMagic), body...) // sealed, so that damage is not found by its sum
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		p := newTestProxy(t)
		p.memories.limit = limit
		err := p.LoadResiduals(bytes.NewReader(b))
		if err != nil && (!errors.Is(err, ErrSaved) || p.memories.bytes != 0) {
			t.Errorf("%v, %d bytes are remembered", err, p.memories.bytes)
		}
		if p.memories.bytes > limit {
			t.Errorf("%d bytes are remembered", p.memories.bytes)
		}
	})
}

// Tensors that have come before the file was loaded keep what they have.
func TestLoadingKeepsWhatIsNewer(t *testing.T) {
	p := newTestProxy(t)
	m := p.memories.of("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true)
	m.residual[0] = 7
	if err := p.LoadResiduals(bytes.NewReader(saved(t, 2))); err != nil {
		t.Fatal(err)
	}
	if now := p.memories.of("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true); now != m || now.residual[0] != 7 {
		t.Errorf("%v is owed, want 7", now.residual[0])
	}
	if other := p.memories.of("job", tensor.Tensor{Key: 2, DType: tensor.Float32, Size: 4000}, true); other.residual[1] != 1 {
		t.Errorf("%v is owed to the other, want 1", other.residual[1])
	}
}
