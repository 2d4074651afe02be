package pair

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A pusher is a worker of ps-lite that pushes gradients of some of an array's rows, or of single keys, to a server.
type pusher struct {
	t              *testing.T
	rows           bool // as MXNet pushes row-sparse arrays; else many keys, as an application of its own does
	width          int  // values of a key
	keys           uint64
	worker, server *zmtp.Conn
	time           int32
	sent, received map[uint64][]float64
	lossy          int // pushes that arrived changed
	largest        float64
	method         *method // of lossy pushes, whose values are checked; nil: of none
	dropped        int     // values of these that arrived as 0
	restored       int     // and the rows that did not
}

// A method decides the fate of a value, to which feedback has added the residual: it is dropped, and arrives as 0, or
// as tells whether it is restored, within a rounding.
type method struct {
	as         func(value, restored, rounding float64) bool
	some, many bool // of the values are dropped: some, more than half, or none
	feedback   bool // dropped values come later
}

// sparseMethods are the methods with keys of their own, without parameters.
var sparseMethods = map[string]method{
	// |x|/b <= |y| <= |x|, unless x is too small a part of the sum.
	"fastsgd": {func(x, y, e float64) bool { return math.Abs(x)/1.1-e <= math.Abs(y) && math.Abs(y) <= math.Abs(x)+e }, true, false, true},
	// x over its probability, which is at most 1, or of each the same.
	"gspar": {func(x, y, _ float64) bool { return math.Abs(y) >= math.Abs(x) }, true, true, false},
	"unisp": {func(x, y, _ float64) bool { return y == float64(float32(x/0.01)) }, true, true, false},
	// The mean of a bucket, of the value's sign.
	"skcompress": {func(x, y, _ float64) bool { return true }, false, false, true},
}

const array = 1000 // MXNet's key of the array, below the keys of its rows

func newPusher(t *testing.T, p *Pair, rows bool, width int, keys uint64) *pusher {
	t.Helper()
	ln := listen(t)
	client, server := connect(t, forward(t, p, ln), ln)
	t.Cleanup(func() { client.Close(); server.Close() })
	x := &pusher{t: t, rows: rows, width: width, keys: keys, sent: map[uint64][]float64{}, received: map[uint64][]float64{}}
	ends := make(chan error, 1)
	go func() {
		var err error
		x.server, err = handshake(t, server, zmtp.Socket{Type: zmtp.Router})
		ends <- err
	}()
	var err error
	if x.worker, err = handshake(t, client, zmtp.Socket{Type: zmtp.Dealer, Identity: "ps9"}); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err != nil {
		t.Fatal(err)
	}
	return x
}

func handshake(t *testing.T, conn net.Conn, own zmtp.Socket) (*zmtp.Conn, error) {
	return zmtp.Handshake(t.Context(), conn, own, nil)
}

// message returns the frames of a push.
func (x *pusher) message(keys []uint64, values []float32) [][]byte {
	m := pslitesim.Meta{Request: true, Push: true, AppID: 0, CustomerID: 0, Timestamp: x.time, DataTypes: []int32{pslitesim.TypeUint64, 9}}
	x.time++
	var k, v, lens []byte
	if x.rows {
		m.Head, m.DataTypes = 1, []int32{pslitesim.TypeUint64, pslitesim.TypeOther, pslitesim.TypeInt32}
		k = binary.LittleEndian.AppendUint64(k, array)
		lens = binary.LittleEndian.AppendUint32(lens, 0)
	}
	for _, key := range keys {
		k = binary.LittleEndian.AppendUint64(k, array+key)
		lens = binary.LittleEndian.AppendUint32(lens, uint32(4*x.width))
	}
	for _, value := range values {
		v = binary.LittleEndian.AppendUint32(v, math.Float32bits(value))
	}
	frames := [][]byte{m.Append(nil), k, v}
	if x.rows {
		frames = append(frames, lens)
	}
	return frames
}

// push pushes gradients of keys, and checks that everything but the values arrives as it was.
func (x *pusher) push(r *rand.Rand, keys []uint64) {
	x.t.Helper()
	values := make([]float32, len(keys)*x.width)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	sent := x.message(keys, values)
	if err := x.worker.WriteMessages([][][]byte{sent}); err != nil {
		x.t.Fatal(err)
	}
	got, err := x.server.ReadMessage()
	if err != nil {
		x.t.Fatal(err)
	}
	if len(got) != len(sent) {
		x.t.Fatalf("%d frames arrive of %d", len(got), len(sent))
	}
	const vals = 2
	for i := range got {
		if i != vals && !bytes.Equal(got[i], sent[i]) {
			x.t.Fatalf("frame %d, of %d bytes, has changed", i, len(sent[i]))
		}
	}
	if len(got[vals]) != len(sent[vals]) {
		x.t.Fatalf("%d bytes of values arrive of %d", len(got[vals]), len(sent[vals]))
	}
	if !bytes.Equal(got[vals], sent[vals]) {
		x.lossy++
		if x.method != nil {
			x.checkValues(keys, values, got[vals])
		}
	}
	x.add(x.sent, keys, sent[vals])
	x.add(x.received, keys, got[vals])
}

// checkValues checks that each value that arrives is 0, or that of its key.
func (x *pusher) checkValues(keys []uint64, values []float32, vals []byte) {
	x.t.Helper()
	for i, value := range values {
		key, j, want := keys[i/x.width], i%x.width, float64(value)
		if x.method.feedback && x.sent[key] != nil {
			want += x.sent[key][j] - x.received[key][j]
		}
		bits := binary.LittleEndian.Uint32(vals[4*i:])
		if bits == 0 {
			x.dropped++
			continue
		}
		x.restored++
		got, e := float64(math.Float32frombits(bits)), x.rounding()
		if sameSign := got*want > 0 || math.Abs(want) <= e; !sameSign || !x.method.as(want, got, e) {
			x.t.Fatalf("push %d: key %d, value %d: %v arrives as %v, which is neither it nor 0", x.time-1, key, j, want, got)
		}
	}
}

// checkDropped checks how many values arrived as 0.
func (x *pusher) checkDropped() {
	x.t.Helper()
	x.t.Logf("%d values were dropped, %d restored", x.dropped, x.restored)
	if m := x.method; m.some != (x.dropped > 0) || m.many != (x.dropped > x.restored) || x.restored == 0 {
		x.t.Errorf("%d values were dropped and %d restored; some should be dropped: %v; more than half: %v", x.dropped, x.restored, m.some, m.many)
	}
}

func (x *pusher) add(sums map[uint64][]float64, keys []uint64, vals []byte) {
	for i, key := range keys {
		if sums[key] == nil {
			sums[key] = make([]float64, x.width)
		}
		for j := range x.width {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(vals[4*(i*x.width+j):])))
			sums[key][j] += v
			x.largest = max(x.largest, math.Abs(v))
		}
	}
}

// draw returns some keys.
func (x *pusher) draw(r *rand.Rand) (keys []uint64) {
	for key := range x.keys {
		if r.IntN(4) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// A worker of ps-lite pushes gradients of other keys each time, as rows of MXNet's and as an application's list,
// through a policy that names a method for sparse gradients: keys arrive, as many as were sent, by the method's own
// codec of keys; a value that the method drops arrives as 0, and others as the method has them; and once every residual
// has been flushed, every key has got its sent values, unless the method is right on average only.
func TestSparsePushes(t *testing.T) {
	methods := 0
	for _, text := range all.Names() {
		c, err := all.New(text)
		if err != nil {
			t.Fatal(err)
		}
		keyCodec := c.Traits().Keys
		if keyCodec == nil {
			continue
		}
		methods++
		for _, rows := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/rows=%v", text, rows), func(t *testing.T) {
				const flushEvery = 41
				rule := policy.Rule{Job: "sparse", Roles: []tensor.Role{tensor.Gradient}, Codec: text, FlushEvery: flushEvery}
				p := start(t, Config{
					Rules: []policy.Rule{rule},
					Jobs:  []proxy.Job{{Name: "sparse", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Sums: parser.SumsGradients}},
				})
				r := rand.New(rand.NewPCG(1, 2))
				x := newPusher(t, p, rows, 8, 2000)
				x.push(r, x.draw(r)) // the first of rank 0 may be weights
				m, ok := sparseMethods[text]
				if !ok {
					t.Fatal("sparseMethods does not say what it drops")
				}
				x.method = &m
				for range flushEvery - 1 {
					x.push(r, x.draw(r))
				}
				x.checkDropped()
				x.method = nil // the residual is sent
				if x.lossy < flushEvery-3 {
					t.Errorf("%d of %d pushes lost something", x.lossy, flushEvery)
				}
				every := make([]uint64, x.keys)
				for i := range every {
					every[i] = uint64(i)
				}
				x.push(r, every)
				if !c.Traits().Unbiased { // an unbiased method has no residual
					x.settled()
				}
				reportKeys(t, p.Near.Tensors(), keyCodec.String())
			})
		}
	}
	if methods == 0 {
		t.Error("no method has keys of its own")
	}
}

// settled checks that every key has got its sent values, but for the rounding of residuals, which are as large as the
// values that were delivered.
func (x *pusher) settled() {
	x.t.Helper()
	for key, sent := range x.sent {
		for j, want := range sent {
			if got := x.received[key][j]; math.Abs(got-want) > x.rounding() {
				x.t.Fatalf("key %d, value %d: %v was sent and %v has arrived", key, j, want, got)
			}
		}
	}
}

// rounding is how far residuals' rounding can have taken a value.
func (x *pusher) rounding() float64 { return float64(x.time) * max(x.largest, 1) * 0x1p-23 }

// reportKeys checks how the keys travelled, and says in how many bits.
func reportKeys(t *testing.T, table []proxy.TensorInfo, codec string) {
	t.Helper()
	i := slices.IndexFunc(table, func(x proxy.TensorInfo) bool { return x.DType == "uint64" && x.Codec == codec })
	if i < 0 {
		t.Fatalf("no keys travelled by %s: %+v", codec, table)
	}
	bits := 64 * float64(table[i].WireBytes) / float64(table[i].RawBytes)
	t.Logf("%s: %.2f bits a key", codec, bits)
	if bits > 10 {
		t.Errorf("a key took %.2f bits of the 64 that it has", bits)
	}
	for _, x := range table {
		if x.Role == "gradient" {
			t.Logf("%s: %.2f bits a value", x.Codec, 32*float64(x.WireBytes)/float64(x.RawBytes))
		}
	}
}
