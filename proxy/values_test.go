package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// newSharingPair starts a pair whose apps send state that each value predicts the next of, and waits until values can
// be shared both ways.
func newSharingPair(t *testing.T, room int64, rules ...policy.Rule) *pair {
	t.Helper()
	p := newPairWith(t, func(_ string, c *Config) { c.Values = room }, []parser.Protocol{pathtest.Toy{Role: tensor.State, Base: true}}, rules...)
	for _, proxy := range []*Proxy{p.near, p.far} {
		waitFor(t, proxy.values().Ready)
	}
	return p
}

// values returns the values that a proxy of a pair shares with the other.
func (p *Proxy) values() *cache.Peer { return p.cache.Peer("far") }

// waitFor waits until ok, which must come about without its help.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

// weights returns n float32 that look like weights, and a function that trains them a little.
func weights(r *rand.Rand, n int) (w []byte, train func()) {
	values := make([]float32, n)
	w = make([]byte, 4*n)
	train = func() {
		for i := range values {
			values[i] += float32(r.NormFloat64()) / 64
			binary.LittleEndian.PutUint32(w[4*i:], math.Float32bits(values[i]))
		}
	}
	train()
	return w, train
}

// carry sends a message over a connection and returns the bytes that arrive.
func carry(t *testing.T, from io.Writer, to io.Reader, message []byte) []byte {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write(message)
		sent <- err
	}()
	got := make([]byte, len(message))
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return got
}

// The same values to four receivers cross once, in whatever order; each gets every byte.
func TestOneCopyForMany(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	type ends struct{ client, server *net.TCPConn }
	var all []ends
	for range 4 {
		c, s := p.connect(t)
		all = append(all, ends{c, s})
	}
	r := rand.New(rand.NewPCG(1, 2))
	w, train := weights(r, 10_000)
	for range 20 {
		train()
		for _, i := range r.Perm(len(all)) {
			if got := carry(t, all[i].client, all[i].server, pathtest.ToyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
				t.Fatal("a receiver got other bytes than were sent")
			}
		}
	}
	waitFor(t, func() bool { return p.near.Tensors()[0].RawBytes == int64(4*20*len(w)) })
	info := p.near.Tensors()[0]
	if limit := int64(20 * len(w) * 11 / 10); info.WireBytes > limit {
		t.Errorf("%d bytes of values became %d on the wire, want at most %d", info.RawBytes, info.WireBytes, limit)
	}
	waitFor(t, func() bool { // a value that has been delivered everywhere and has a successor is forgotten
		return p.far.values().Stats().Entries == 10 // blocks of the test's codec
	})
}

// State may lose something only as a difference to the value that the receiver holds: it stays within the codec's error
// of one step.
func TestClosedLoopOfState(t *testing.T) {
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves", FlushEvery: 5})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for i := range 30 {
		train()
		got := carry(t, c, s, pathtest.ToyPiece(1, len(w), w))[8:]
		if exact := bytes.Equal(got, w); exact != (i%5 == 0) { // the first, and each fifth after it
			t.Errorf("value %d arrives exactly: %v", i, exact)
		}
		for i := 0; i < len(w); i += 4 {
			sent, came := math.Float32frombits(binary.LittleEndian.Uint32(w[i:])), math.Float32frombits(binary.LittleEndian.Uint32(got[i:]))
			if math.Abs(float64(sent-came)) > 0.5 {
				t.Fatalf("a weight of %g arrived as %g", sent, came)
			}
		}
	}
}

// Where the peer does not hold values, state travels exactly, whatever a rule says.
func TestStateWithoutReferences(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{Role: tensor.State, Base: true}}, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves"})
	p.mu.Lock()
	p.codecs = []string{"lossless", "halves"} // and not SharedValues
	p.mu.Unlock()
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(5, 6)), 3000)
	for range 5 {
		train()
		if got := carry(t, c, s, pathtest.ToyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("state was changed without a reference")
		}
	}
}

// More tensors than there is room for: some are evicted, and arrive all the same; both ends stay within the room.
func TestValuesAreEvicted(t *testing.T) {
	const room = 64 << 10
	p := newSharingPair(t, room)
	c, s := p.connect(t)
	r := rand.New(rand.NewPCG(7, 8))
	for range 400 {
		w, _ := weights(r, 1000)
		if got := carry(t, c, s, pathtest.ToyPiece(byte(r.IntN(100)), len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("other bytes arrived")
		}
		if used := p.far.values().Stats().Stored; used > room {
			t.Fatalf("%d bytes are held where %d have room", used, room)
		}
	}
}

// A connection that ends amid its Refs gives them back.
func TestEndedConnectionsGiveBack(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	w, train := weights(rand.New(rand.NewPCG(9, 10)), 10_000)
	for i := range 20 {
		c, s := p.connect(t)
		train()
		go c.Write(pathtest.ToyPiece(1, len(w), w))
		if i%2 == 0 {
			io.ReadFull(s, make([]byte, 100))
		}
		s.SetLinger(0)
		s.Close()
		c.Close()
	}
	waitFor(t, func() bool {
		st := p.near.values().Stats()
		return st.Writing && st.Pending == 0 && st.Referring == 0
	})
}

// When the value stream is lost, connections that wait for a value are reset, and others go on with whole values.
func TestValueStreamIsLost(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(11, 12)), 10_000)
	for i := range 10 {
		train()
		if got := carry(t, c, s, pathtest.ToyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("other bytes arrived")
		}
		if i == 4 {
			p.near.cache.Reset()
			waitFor(t, func() bool { return !p.near.values().Stats().Writing })
		}
	}
}

// bodyOf returns the body of the frame that b begins with, and the bytes after it, as far as both are there.
func bodyOf(b []byte) (body, rest []byte) {
	r := frame.Fields{B: b}
	if k := frame.Kind(r.Byte()); k == frame.Declare || k == frame.Block {
		r.Int()
	}
	n := min(r.Int(), len(r.B))
	return r.B[:n], r.B[n:]
}

// A difference whose version is right and whose hash is not breaks the connection that it would have damaged, is
// counted, and logged as an error.
func TestWrongReferenceResets(t *testing.T) {
	metrics := NewMetrics(prometheus.NewRegistry())
	var log logBuffer
	p := newPairWith(t, func(name string, c *Config) {
		if c.Values = 1 << 20; name == "far" {
			c.Metrics, c.Log = metrics, slog.New(slog.NewTextHandler(&log, nil))
		}
	}, []parser.Protocol{pathtest.Toy{Role: tensor.State, Base: true}})
	var wrong atomic.Bool
	p.mu.Lock()
	p.tamper = func(b []byte) {
		const xorForm, difference = 1, 2 // forms of package reference
		for len(b) > 3 && b[0] > byte(frame.Bytes) && b[0] <= byte(frame.Seen) {
			body, rest := bodyOf(b)
			if b[0] == byte(frame.Block) && len(body) > 11 && body[0] == frame.FormCoded && (body[1] == xorForm || body[1] == difference) && wrong.CompareAndSwap(false, true) {
				body[3] ^= 1 // behind form and version: the hash
			}
			b = rest
		}
	}
	p.mu.Unlock()
	waitFor(t, p.near.values().Ready)
	c, s := p.connect(t)
	w, _ := weights(rand.New(rand.NewPCG(13, 14)), 64)
	if got := carry(t, c, s, pathtest.ToyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
		t.Fatal("other bytes arrived")
	}
	w[0]++ // all other bytes are predicted
	go c.Write(pathtest.ToyPiece(1, len(w), w))
	s.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(s); err == nil || len(b) > 8 || !wrong.Load() {
		t.Fatalf("%d bytes arrived, and %v, where the reference was wrong (%v)", len(b), err, wrong.Load())
	}
	waitFor(t, func() bool { return strings.Contains(log.String(), "level=ERROR") }) // the connection is reset before that
	if n := testutil.ToFloat64(metrics.wrong); n != 1 {
		t.Errorf("%v wrong references are counted, want 1", n)
	}
}

// Sums that may lose something do so with feedback, even where the peer could hold them: the residual of one is in the
// next.
func TestLossyAggregatesAreNotShared(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{Role: tensor.Aggregate, Base: true}}, policy.Rule{Codec: "halves"})
	settings := *p.near.settings.Load()
	settings.Jobs = []Job{{Name: "sums", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, LossyAggregates: true}}
	p.near.Apply(settings)
	c, s := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
	for range 50 {
		v, msg := values(l.r)
		l.step(c, s, v, msg)
	}
	if l.exact[10] {
		t.Error("nothing was lost: the test shows nothing")
	}
	l.conserved(p.near)
}

// A value that has lost something is not good for one that may not, though the app sends the same again: once the
// policy says so, or each Nth time.
func TestExactValueAfterALossyOne(t *testing.T) {
	state := []tensor.Role{tensor.State}
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: state, Codec: "halves"})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(15, 16)), 3000)
	lossy := func(want bool) {
		t.Helper()
		if got := carry(t, c, s, pathtest.ToyPiece(1, len(w), w)); bytes.Equal(got[8:], w) == want {
			t.Errorf("loss %v, want %v", !want, want)
		}
	}
	change := func(r policy.Rule) {
		t.Helper()
		chosen, err := policy.New([]policy.Rule{r}, testCodecs)
		if err != nil {
			t.Fatal(err)
		}
		settings := *p.near.settings.Load()
		settings.Policy = chosen
		p.near.Apply(settings)
	}
	lossy(false) // the first
	for range 10 {
		train()
		lossy(true)
	}
	change(policy.Rule{Roles: state, Codec: "lossless"})
	lossy(false)
	train()
	lossy(false)
	change(policy.Rule{Roles: state, Codec: "halves"})
	for range 7 {
		train()
		lossy(true)
	}
	change(policy.Rule{Roles: state, Codec: "halves", FlushEvery: 5}) // which is due long since
	for i := range 11 {
		train()
		lossy(i%5 != 0)
	}
}

// How much the peer lacks of weights that travel as differences is measured, and their bytes are counted by one codec,
// peer and job.
func TestLossOfWeightsIsMeasured(t *testing.T) {
	near, far := prometheus.NewRegistry(), prometheus.NewRegistry()
	p := newPairWith(t, func(name string, c *Config) {
		c.Values, c.Metrics = 1<<20, NewMetrics(map[string]*prometheus.Registry{"near": near, "far": far}[name])
	}, []parser.Protocol{pathtest.Toy{Role: tensor.State, Base: true}}, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves"})
	waitFor(t, p.near.values().Ready)
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(15, 16)), 3000)
	for range 10 {
		carry(t, c, s, pathtest.ToyPiece(1, len(w), w))
		train()
	}
	waitFor(t, func() bool {
		return seriesOf(t, near)[`raw_bytes_total{codec="halves",peer="far",role="state",training_job=""}`] == 10*3000*4
	})
	got := seriesOf(t, near)
	if n := got[`relative_error{codec="halves",role="state"}`]; n != 6 { // of three blocks, the 2nd and the 10th value: the first travels whole
		t.Errorf("the loss of %v values of blocks was measured, want 6", n)
	}
	if wire := got[`wire_bytes_total{codec="halves",peer="far",role="state",training_job=""}`]; wire < 10*3000/4 || wire > 10*3000*2 {
		t.Errorf("%v bytes were handed to the tunnel for 10 values of 12,000 bytes, of which half is sent", wire)
	}
	if n := seriesOf(t, far)[`decode_seconds{codec="halves",role="state"}`]; n < 27 {
		t.Errorf("%v values of blocks of the role were decoded, want 27 at least", n)
	}
}

// Weights that do not change any more arrive closer each time, and exactly when that is due.
func TestTheSameWeightsAgain(t *testing.T) {
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves", FlushEvery: 5})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for range 3 {
		train()
		carry(t, c, s, pathtest.ToyPiece(1, len(w), w))
	}
	exact := 0
	for range 30 {
		if bytes.Equal(carry(t, c, s, pathtest.ToyPiece(1, len(w), w))[8:], w) {
			exact++
		}
	}
	if exact < 28 { // from the first due one on nothing changes
		t.Errorf("%d of 30 pulls of the same weights are exact", exact)
	}
}
