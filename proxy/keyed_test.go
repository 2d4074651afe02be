package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// quarter is a method for sparse gradients: of four values it delivers one, at each encoding another.
type quarter struct{}

func (quarter) String() string          { return "quarter" }
func (quarter) MaxEncodedLen(n int) int { return 1 + 4*n }
func (quarter) Block(size int) int      { return size }
func (quarter) Traits() codecs.Traits   { return codecs.Traits{Keys: keys.New(keys.Rice{})} }
func (quarter) NewEncoder(n int) (codecs.ValueEncoder, error) {
	return &quarterCoder{}, nil
}
func (quarter) NewDecoder(n int) (codecs.ValueDecoder, error) { return &quarterCoder{}, nil }

type quarterCoder struct{ from int }

func (q *quarterCoder) Append(dst []byte, src []float32) ([]byte, error) {
	dst = append(dst, byte(q.from))
	for i := q.from; i < len(src); i += 4 {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(src[i]))
	}
	q.from = (q.from + 1) % 4
	return dst, nil
}

func (q *quarterCoder) Decode(dst []float32, src []byte) error {
	clear(dst)
	if len(src) == 0 || src[0] > 3 || len(src)-1 != 4*((len(dst)-int(src[0])+3)/4) {
		return codecs.ErrCorrupt
	}
	for i, at := int(src[0]), 1; i < len(dst); i, at = i+4, at+4 {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[at:]))
	}
	return nil
}

// index returns the row of the tensor table that is the index of the rows.
func (l *sparseRun) index(t *testing.T, p *Proxy) TensorInfo {
	t.Helper()
	for _, info := range p.Tensors() {
		if info.Role == tensor.Exact.String() && info.Key == sparseKeys {
			return info
		}
	}
	t.Fatal("the index is not listed")
	return TensorInfo{}
}

// low returns ids that lie as close together as the keys of an application.
func low(ids []uint64) []uint64 {
	for i := range ids {
		ids[i] >>= 40
	}
	return ids
}

// The keys of a message travel by the codec of keys that belongs to the codec of its values, from the second message
// on, however few they are; values that the method does not send arrive as zero, and are made up for when their key
// comes again.
func TestKeysAndValuesByOneMethod(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "quarter"})
	l := newSparseRun(t, tensor.Float32, 1)
	r := rand.New(rand.NewPCG(1, 2))
	client, server := p.connect(t)
	for n := range 60 {
		ids := low(l.draw(r, 10+r.IntN(80))) // fewer bytes than are coded where nothing depends on it
		rows := l.rows(r, len(ids))
		head := len(sparseMessage(sparseArray, ids, rows)) - len(rows)
		got := carry(t, client, server, sparseMessage(sparseArray, ids, rows))
		if !bytes.Equal(got[:head], sparseMessage(sparseArray, ids, rows)[:head]) {
			t.Fatal("the keys have changed")
		}
		zeros := 0
		for v := range slices.Chunk(got[head:], 4) {
			if bytes.Equal(v, []byte{0, 0, 0, 0}) {
				zeros++
			}
		}
		if want := len(ids) - len(ids)/4; n > 0 && (zeros < want-1 || zeros > want) {
			t.Errorf("of %d values %d arrive as zero, want %d", len(ids), zeros, want)
		}
		l.add(l.sent, ids, rows)
		l.add(l.received, ids, got[head:])
		l.values++
	}
	l.conserved(p.near)
	if len(l.residuals(p.near)) == 0 {
		t.Error("there is no residual: the test shows nothing")
	}
	info := l.index(t, p.near)
	if info.Codec != "rice" || info.WireBytes > info.RawBytes/2 || info.Reason != tensor.OK.String() {
		t.Errorf("the keys travelled as %+v", info)
	}
	t.Logf("%.1f bits a key, declarations included", 64*float64(info.WireBytes)/float64(info.RawBytes))
}

// Where the values are not coded by a method with keys of its own (any more), nor are the keys; nor where the peer
// lacks it, or a rule speaks of them.
func TestKeysTravelAsBefore(t *testing.T) {
	exact := policy.Rule{Roles: []tensor.Role{tensor.Exact}, Codec: "delta-binary"}
	quarter := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "quarter"}
	for name, c := range map[string]struct {
		rules []policy.Rule
		peer  []string
		then  string // codec of a reload
		want  string // "": by no codec of keys
	}{
		"by the method":       {rules: []policy.Rule{quarter}, want: "rice"},
		"no keys of its own":  {rules: []policy.Rule{{Roles: quarter.Roles, Codec: "3lc(s=1.75)"}}},
		"another codec since": {rules: []policy.Rule{quarter}, then: "3lc(s=1.75)"},
		"a rule for all":      {rules: []policy.Rule{{Codec: "quarter"}}, want: "rice"},
		"a rule of their own": {rules: []policy.Rule{exact, quarter}, want: "delta-binary"},
		"the peer lacks it":   {rules: []policy.Rule{quarter}, peer: []string{"lossless", "quarter"}},
	} {
		p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "lossless"})
		p.mu.Lock()
		p.codecs = c.peer
		p.mu.Unlock()
		choose := func(rules []policy.Rule) {
			chosen, err := policy.New(rules, realLoss)
			if err != nil {
				t.Fatal(err)
			}
			settings := *p.near.settings.Load()
			settings.Policy = chosen
			p.near.Apply(settings)
		}
		choose(c.rules)
		l := newSparseRun(t, tensor.Float32, 4)
		r := rand.New(rand.NewPCG(3, 4))
		client, server := p.connect(t)
		for i := range 30 {
			if i == 20 && c.then != "" {
				choose([]policy.Rule{{Roles: quarter.Roles, Codec: c.then}})
			}
			ids := l.draw(r, 200)
			l.step(client, server, ids, l.rows(r, len(ids)))
		}
		l.conserved(p.near)
		got := l.index(t, p.near).Codec
		if c.want == "" && (got == "rice" || got == "delta-binary") || c.want != "" && got != c.want {
			t.Errorf("%s: keys travel as %s, want %q", name, got, c.want)
		}
	}
}

// Messages of more lengths than there are slots for blocks of variable length arrive.
func TestMessagesOfManyLengths(t *testing.T) {
	p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: "quarter"})
	l := newSparseRun(t, tensor.Float32, 1)
	r := rand.New(rand.NewPCG(5, 6))
	client, server := p.connect(t)
	for i := range 2*64 + 10 {
		ids := l.draw(r, 5+i)
		l.step(client, server, ids, l.rows(r, len(ids)))
	}
	l.conserved(p.near)
}

// sparseMethods are the methods that are made for sparse gradients.
func sparseMethods(t *testing.T) (texts []string) {
	t.Helper()
	for _, name := range all.Names() {
		c, err := all.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Traits().Keys != nil {
			texts = append(texts, name)
		}
	}
	if len(texts) == 0 {
		t.Fatal("there is none")
	}
	return texts
}

// Every method for sparse gradients carries pushes of rows, and of single values: the same keys arrive, the values sent
// of each are the values received and the residual, unless the method is right on average only, and a key takes far
// fewer bits than the 64 that it has.
func TestSparseMethods(t *testing.T) {
	rows := uint64(6000)
	if require.Race {
		rows = 1500
	}
	for _, text := range sparseMethods(t) {
		for _, width := range []int{1, 16} {
			p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: text})
			l := newSparseRun(t, tensor.Float32, width)
			r := rand.New(rand.NewPCG(7, 8))
			for range 3 {
				client, server := p.connect(t)
				for range 20 {
					var ids []uint64
					for id := range rows {
						if r.IntN(4) == 0 {
							ids = append(ids, id)
						}
					}
					l.step(client, server, ids, l.rows(r, len(ids)))
				}
				client.Close()
				server.Close()
			}
			c, err := all.New(text)
			if err != nil {
				t.Fatal(err)
			}
			if !c.Traits().Unbiased {
				l.conserved(p.near)
			}
			if !l.exact[0] || l.lossy() < 59 {
				t.Errorf("%s, rows of %d: the first value is exact: %v; %d of %d lost something", text, width, l.exact[0], l.lossy(), l.values)
			}
			info := l.index(t, p.near)
			bits := 64 * float64(info.WireBytes) / float64(info.RawBytes)
			t.Logf("%s, rows of %d: %.2f bits a key, frames and declarations included", text, width, bits)
			if info.Codec != c.Traits().Keys.String() || bits > 10 {
				t.Errorf("%s: the keys travelled as %s in %.2f bits", text, info.Codec, bits)
			}
		}
	}
}

// Whatever a far end writes in place of an encoding of a method for sparse gradients, the connection ends or is reset,
// and no more bytes come than were sent.
func TestSparseMethodsFromAHostilePeer(t *testing.T) {
	for _, text := range append(sparseMethods(t), "quarter") {
		for seed := range uint64(40) {
			p := newSparsePair(t, sparseToy{lasting: true, dtype: tensor.Float32}, policy.Rule{Codec: text})
			l := newSparseRun(t, tensor.Float32, 1)
			r := rand.New(rand.NewPCG(9, seed))
			client, server := p.connect(t)
			for range 3 {
				ids := l.draw(r, 150)
				l.step(client, server, ids, l.rows(r, len(ids)))
			}
			p.mu.Lock()
			from := r.IntN(100)
			tamper := func(b []byte) {
				if from < len(b) {
					b[from] ^= byte(1 + seed)
				}
			}
			for _, s := range p.streams {
				s.tamper.Store(&tamper)
			}
			p.mu.Unlock()
			ids := l.draw(r, 150)
			message := sparseMessage(sparseArray, ids, l.rows(r, len(ids)))
			if _, err := client.Write(message); err != nil {
				t.Fatal(err)
			}
			client.CloseWrite()
			server.SetReadDeadline(time.Now().Add(time.Minute))
			got, err := io.ReadAll(server)
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatalf("%s, seed %d: neither reset nor ended", text, seed)
			}
			if len(got) > len(message) {
				t.Errorf("%s, seed %d: %d bytes came of %d", text, seed, len(got), len(message))
			}
			client.Close()
			server.Close()
		}
	}
}
