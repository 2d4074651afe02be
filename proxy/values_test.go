package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// newSharingPair starts a pair whose apps send state that each value predicts the next of, and waits until values can be
// shared both ways.
func newSharingPair(t *testing.T, room int64, rules ...policy.Rule) *pair {
	t.Helper()
	p := newPair(t, []parser.Protocol{toy{role: tensor.State, base: true}}, rules...)
	p.share(t, room)
	return p
}

// share has both proxies share values, and waits until they can.
func (p *pair) share(t *testing.T, room int64) {
	t.Helper()
	p.near.Values, p.far.Values = room, room
	for _, proxy := range []*Proxy{p.near, p.far} {
		waitFor(t, func() bool {
			s := proxy.sharerOf("far")
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ready() != nil
		})
	}
}

// waitFor waits until ok; what it waits for comes about without its help.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
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

// carry sends a message over a connection and returns what arrives of it.
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
			if got := carry(t, all[i].client, all[i].server, toyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
				t.Fatal("a receiver got other bytes than were sent")
			}
		}
	}
	waitFor(t, func() bool { return p.near.Tensors()[0].RawBytes == int64(4*20*len(w)) })
	info := p.near.Tensors()[0]
	if most := int64(20 * len(w) * 11 / 10); info.WireBytes > most {
		t.Errorf("%d bytes of values became %d on the wire, want at most %d", info.RawBytes, info.WireBytes, most)
	}
	held := p.far.sharerOf("far").held
	waitFor(t, func() bool { // what has been delivered everywhere and has a successor is forgotten
		held.mu.Lock()
		defer held.mu.Unlock()
		return len(held.values) == 10 // blocks of the test's codec
	})
}

// State may lose something only as a difference to what the receiver holds: it stays within the codec's error of one step.
func TestClosedLoopOfState(t *testing.T) {
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves", FlushEvery: 5})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for i := range 30 {
		train()
		got := carry(t, c, s, toyPiece(1, len(w), w))[8:]
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
	p := newPair(t, []parser.Protocol{toy{role: tensor.State, base: true}}, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves"})
	p.mu.Lock()
	p.codecs = []string{"lossless", "halves"} // and not SharedValues
	p.mu.Unlock()
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(5, 6)), 3000)
	for range 5 {
		train()
		if got := carry(t, c, s, toyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
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
	held := p.far.sharerOf("far").held
	for range 400 {
		w, _ := weights(r, 1000)
		if got := carry(t, c, s, toyPiece(byte(r.IntN(100)), len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("other bytes arrived")
		}
		held.mu.Lock()
		used := held.used
		held.mu.Unlock()
		if used > room {
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
		go c.Write(toyPiece(1, len(w), w))
		if i%2 == 0 {
			io.ReadFull(s, make([]byte, 100))
		}
		s.SetLinger(0)
		s.Close()
		c.Close()
	}
	near := p.near.sharerOf("far")
	waitFor(t, func() bool {
		near.mu.Lock()
		defer near.mu.Unlock()
		if near.out == nil {
			return false
		}
		for _, values := range near.out.lent {
			if len(values) > 0 {
				return false
			}
		}
		return len(near.refers) == 0
	})
}

// When the value stream is lost, connections that wait for a value are reset, and others go on with whole values.
func TestValueStreamIsLost(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(11, 12)), 10_000)
	for i := range 10 {
		train()
		if got := carry(t, c, s, toyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("other bytes arrived")
		}
		if i == 4 {
			near := p.near.sharerOf("far")
			near.mu.Lock()
			near.out.stream.Reset(frame.ResetByFrames)
			near.mu.Unlock()
			waitFor(t, func() bool {
				near.mu.Lock()
				defer near.mu.Unlock()
				return near.out == nil
			})
		}
	}
}

// A reference that differs at the two ends is found, and breaks what it would have damaged.
func TestWrongReferenceResets(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	c, s := p.connect(t)
	w, _ := weights(rand.New(rand.NewPCG(13, 14)), 1000)
	carry(t, c, s, toyPiece(1, len(w), w))
	held := p.far.sharerOf("far").held
	for _, slot := range held.slots {
		slot.copy.Set(make([]byte, slot.size()))
	}
	w[0]++ // all other bytes are predicted
	go c.Write(toyPiece(1, len(w), w))
	if b, err := io.ReadAll(s); err == nil || len(b) > 8 {
		t.Fatalf("%d bytes arrived, and %v, where the reference was wrong", len(b), err)
	}
}

// Sums that may lose something do so with feedback, even where the peer could hold them: what is owed to one is in the next.
func TestLossyAggregatesAreNotShared(t *testing.T) {
	p := newPair(t, []parser.Protocol{toy{role: tensor.Aggregate, base: true}}, policy.Rule{Codec: "halves"})
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

// A value that has lost something is not good for one that may not, though the app sends the same again: once the policy says
// so, or each Nth time.
func TestExactValueAfterALossyOne(t *testing.T) {
	state := []tensor.Role{tensor.State}
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: state, Codec: "halves"})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(15, 16)), 3000)
	lossy := func(want bool) {
		t.Helper()
		if got := carry(t, c, s, toyPiece(1, len(w), w)); bytes.Equal(got[8:], w) == want {
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

// A Ref that names no value is a broken frame, wherever it stands.
func TestRefToNothing(t *testing.T) {
	body := binary.AppendUvarint(append(binary.AppendUvarint(nil, 2*1), 'x'), 2*4+1)
	gather := frame.Frame{Kind: frame.Gather, Body: binary.AppendUvarint(body, 0)}
	for name, frames := range map[string][]frame.Frame{
		"alone":       {{Kind: frame.Ref, Body: frame.ValueRef{Epoch: 1, ID: 0, Size: 4}.Append(nil)}},
		"in a gather": {gather, {Kind: frame.Ref, Body: frame.ValueRef{Epoch: 1, ID: 0, Size: 4}.Append(nil)}},
		"of no bytes": {gather, {Kind: frame.Ref, Body: frame.ValueRef{Epoch: 1, ID: 1, Size: 0}.Append(nil)}},
	} {
		p := newTestProxy(t)
		a, far, err := tcpPair()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		defer a.Close()
		var wire [][]byte
		for _, f := range frames {
			wire = append(wire, frame.Append(nil, f))
		}
		f := newFeed(wire...)
		r := newReceiver(&connection{shared: p, conn: app.Plain(a), peer: "hostile", stream: f, log: p.Log}, f)
		if err := r.run(); !errors.Is(err, frame.ErrFrame) {
			t.Errorf("%s: %v, want a broken frame", name, err)
		}
	}
}

// While a value stream is being opened no other is, however long that takes, as in an outage.
func TestOneValueStreamIsOpened(t *testing.T) {
	p := newPair(t, []parser.Protocol{toy{role: tensor.State, base: true}}, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves"})
	opened, release := make(chan struct{}, 100), make(chan struct{})
	hold := func(opening []byte) {
		if opening[0] == frame.OpeningValues {
			opened <- struct{}{}
			<-release
		}
	}
	p.opens.Store(&hold)
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	near := p.near.sharerOf("far")
	for range 20 {
		train()
		if got := carry(t, c, s, toyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("something was lost, without anything to differ from")
		}
		near.mu.Lock()
		near.opened = time.Time{} // long ago
		near.mu.Unlock()
	}
	if n := len(opened); n != 1 {
		t.Errorf("%d value streams were opened at once", n)
	}
	close(release)
	waitFor(t, func() bool {
		near.mu.Lock()
		defer near.mu.Unlock()
		return near.ready() != nil
	})
	for range 20 {
		train()
		carry(t, c, s, toyPiece(1, len(w), w))
	}
}

// What is remembered of a value does not grow with how often it is sent.
func TestTheSameValueForEver(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	c, s := p.connect(t)
	w, _ := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for range 100 {
		if got := carry(t, c, s, toyPiece(1, len(w), w)); !bytes.Equal(got[8:], w) {
			t.Fatal("other bytes arrived")
		}
	}
	near := p.near.sharerOf("far")
	near.mu.Lock()
	defer near.mu.Unlock()
	for _, e := range near.out.slots {
		if n := len(e.Value.(*putSlot).latest.served); n > 1 {
			t.Errorf("%d connections are remembered of a value that one has sent", n)
		}
	}
}

// Weights that do not change any more arrive closer each time, and exactly when that is due.
func TestTheSameWeightsAgain(t *testing.T) {
	p := newSharingPair(t, 1<<20, policy.Rule{Roles: []tensor.Role{tensor.State}, Codec: "halves", FlushEvery: 5})
	c, s := p.connect(t)
	w, train := weights(rand.New(rand.NewPCG(3, 4)), 3000)
	for range 3 {
		train()
		carry(t, c, s, toyPiece(1, len(w), w))
	}
	exact := 0
	for range 30 {
		if bytes.Equal(carry(t, c, s, toyPiece(1, len(w), w))[8:], w) {
			exact++
		}
	}
	if exact < 28 { // from the first due one on nothing changes
		t.Errorf("%d of 30 pulls of the same weights are exact", exact)
	}
}
