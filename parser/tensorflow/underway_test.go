package tensorflow

import (
	"fmt"
	"slices"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

// A watched connection is one whose keys under way a test looks at as its bytes come.
type watched struct {
	*grpctest.Wire
	t       *testing.T
	conn    *connection
	parsers [2]parser.Parser
	read    int // pieces
}

func watch(t *testing.T) *watched {
	w := &watched{Wire: grpctest.New(t), t: t, conn: newConnection(parser.Conn{}, new(facts))}
	w.parsers[0], w.parsers[1] = grpc.New(w.conn)
	w.play()
	return w
}

// play gives the parsers the bytes that were written since.
func (w *watched) play() {
	w.t.Helper()
	all := w.Exchange()
	for _, piece := range all[w.read:] {
		for b := piece.Bytes; len(b) > 0; {
			seg, err := w.parsers[piece.From].Next(b)
			if err != nil {
				w.t.Fatal(err)
			}
			b = b[seg.Len:]
		}
	}
	w.read = len(all)
}

// values returns an EnqueueRequest of n tensors of 256 bytes or a few more, each of another shape.
func values(n int) []byte {
	b := sim.Fixed(nil, 1, 77)
	for i := range n {
		dims := append([]uint64{minArgument + uint64(i%64)}, slices.Repeat([]uint64{1}, i/64)...)
		b = sim.Sub(b, 3, sim.Sub(nil, 3, sim.Sub(nil, 2, sim.Tensor(4, make([]byte, dims[0]), dims...))))
	}
	return b
}

// The keys of a message count as long as they take memory: until it ends, or until messages that were reset are looked
// for.
func TestKeysUnderWayAreHeld(t *testing.T) {
	const n, enqueue = 4000, "/tensorflow.eager.EagerService/Enqueue"
	request := grpctest.Prefixed(values(n))
	for _, reset := range []bool{false, true} {
		w := watch(t)
		id, empty := w.Call(enqueue), parser.Held(w.parsers[parser.Client])
		w.Data(parser.Client, id, request[:len(request)-1], false)
		w.play()
		if got := parser.Held(w.parsers[parser.Client]) - empty; got < n*perKey || got > n*perKey+16<<10 {
			t.Errorf("%d keys under way take %d bytes, want about %d", n, got, n*perKey)
		}
		if reset {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteRSTStream(id, xhttp2.ErrCodeCancel) })
			for range maxUnder {
				one := grpctest.Prefixed(values(1))
				w.Data(parser.Client, w.Call(enqueue), one[:len(one)-1], false)
			}
		} else {
			w.Data(parser.Client, id, request[len(request)-1:], true)
		}
		w.play()
		if got := w.conn.Held(parser.Client); got > perKey*maxUnder {
			t.Errorf("after their message (reset: %v) keys take %d bytes", reset, got)
		}
	}
}

// However many messages and tensors are under way, the search for messages that were reset costs each of them a few
// looks, and finds all but a few.
func TestKeysUnderWayCostAFewLooks(t *testing.T) {
	for _, n := range []int{500, 1000, 3000} {
		w := watch(t)
		body := grpctest.Prefixed(sim.Response(sim.Tensor(1, make([]byte, 400), 100)))
		var ids []uint32
		open := func(i int) {
			id := w.Call(sim.WorkerService + "RecvTensor")
			ids = append(ids, id)
			w.Message(parser.Client, id, sim.Request(7, sim.Key(sim.Worker, sim.Server, fmt.Sprint("edge_", i, "_g")), uint64(i+1)), 1000)
			w.Respond(id)
			w.Data(parser.Server, id, body[:100], false)
		}
		for i := range n {
			open(i)
		}
		w.play()
		under := &w.conn.under[parser.Server]
		if len(under.byKey) != n || under.looked > 2*n {
			t.Errorf("%d tensors under way: %d keys, %d looks", n, len(under.byKey), under.looked)
		}
		for _, id := range ids {
			w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteRSTStream(id, xhttp2.ErrCodeCancel) })
		}
		for i := range 2 * n {
			open(n + i)
			w.Data(parser.Server, ids[len(ids)-1], body[100:], true)
			w.play()
		}
		if len(under.byKey) > n || under.looked > 10*n {
			t.Errorf("of %d tensors that were reset %d keys are left, after %d looks", n, len(under.byKey), under.looked)
		}
	}
}

// Messages that take over each other's keys, as each is reset, are kept no longer than that.
func TestResetMessagesLoseTheirKeysToTheNext(t *testing.T) {
	w := watch(t)
	request := grpctest.Prefixed(values(100))
	for range maxUnder / 2 {
		id := w.Call("/tensorflow.eager.EagerService/Enqueue")
		w.Data(parser.Client, id, request[:len(request)-1], false)
		w.Frame(parser.Client, func(f *xhttp2.Framer) error { return f.WriteRSTStream(id, xhttp2.ErrCodeCancel) })
		w.play()
		if n := len(w.conn.under[parser.Client].messages); n > 1 {
			t.Fatalf("%d messages are kept, want 1", n)
		}
	}
}
