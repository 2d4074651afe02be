package receive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A pipeWriter is an app's socket that is a pipe.
type pipeWriter struct{ net.Conn }

func (p pipeWriter) Writev(parts net.Buffers) (int64, error) { return parts.WriteTo(p.Conn) }

// A taker is an app's socket that takes everything.
type taker struct{ got []byte }

func (a *taker) Write(p []byte) (int, error) {
	a.got = append(a.got, p...)
	return len(p), nil
}

func (a *taker) Writev(parts net.Buffers) (int64, error) { return parts.WriteTo(a) }

// newReceiver returns the Receiver of a stream in an Env, and the app that it delivers to.
func newReceiver(t testing.TB, env *path.Env, s path.Stream) (*Receiver, *taker) {
	r := New(&path.Conn{Env: env, Stream: s, Peer: "far", Log: pathtest.Log(t)}, nil)
	to := new(taker)
	r.deliver.app = to
	return r, to
}

// wireOf returns frames as they are on the wire.
func wireOf(frames ...frame.Frame) (wire []byte) {
	for _, f := range frames {
		wire = frame.Append(wire, f)
	}
	return wire
}

// declare returns the Declare frame of a slot of n float32.
func declare(slot uint32, codec string, n int) frame.Frame {
	d := frame.Declaration{Codec: codec, DType: tensor.Float32, N: n}
	return frame.Frame{Kind: frame.Declare, Slot: slot, Body: d.Append(nil)}
}

// coded returns the Block frame of a slot of the counting codec: its elements begin with the given bytes, and the other
// bytes are 0.
func coded(slot uint32, number uint64, elements string) frame.Frame {
	body := binary.LittleEndian.AppendUint64([]byte{frame.FormCoded}, number)
	return frame.Frame{Kind: frame.Block, Slot: slot, Body: append(body, elements...)}
}

// Blocks and the bytes between them arrive in stream order, and so do blocks that stand alone.
func TestReceive(t *testing.T) {
	env := pathtest.NewEnv(t)
	gather := frame.AppendLiteral(nil, []byte("<"))
	gather = frame.AppendRun(gather, 4, 0)
	gather = frame.AppendLiteral(gather, []byte("|"))
	gather = frame.AppendRun(gather, 8, 1)
	gather = frame.AppendRun(gather, 4, 0)
	wire := wireOf(frame.Frame{Kind: frame.Bytes, Body: []byte("head")}, declare(3, "lossless", 2),
		frame.Frame{Kind: frame.Gather, Body: gather}, coded(3, 0, "abcdefg"), coded(3, 1, "ABCDEFG"), coded(3, 2, "alone"),
		frame.Frame{Kind: frame.Block, Slot: 3, Body: append([]byte{frame.FormRaw}, "rawbytes"...)}, frame.Frame{Kind: frame.CloseWrite})
	const want = "head<abcd|ABCDEFG\x00efg\x00alone\x00\x00\x00rawbytes"
	for _, sizes := range [][]int{{1}, {7, 3}, {1 << 20}} {
		r, to := newReceiver(t, env, &pathtest.Cut{B: wire, Sizes: sizes})
		if err := r.Run(); err != nil || string(to.got) != want {
			t.Errorf("in pieces of %v: %q, %v; want %q", sizes, to.got, err, want)
		}
	}
	pathtest.Whole(t, env)
}

// A block that does not decode, alone or in a gather, resets the connection, and no byte of its group is delivered: the
// app must see an error, never garbage.
func TestCorruptBlockIsNotDelivered(t *testing.T) {
	gather := frame.AppendLiteral(nil, []byte("between"))
	gather = frame.AppendRun(gather, 8, 0)
	gather = frame.AppendRun(gather, 8, 1)
	group := frame.Frame{Kind: frame.Gather, Body: gather}
	larger := frame.Frame{Kind: frame.Gather, Body: frame.AppendRun(nil, 12, 0)}
	good, corrupt := coded(3, 0, "good"), coded(3, 77, "corrupt")
	for name, frames := range map[string][]frame.Frame{
		"alone":              {corrupt},
		"first of a gather":  {group, corrupt, good},
		"second of a gather": {group, good, corrupt},
		"of an unknown form": {{Kind: frame.Block, Slot: 3, Body: append([]byte{9}, make([]byte, 8)...)}},
		"of the cache's form": {group, good, {Kind: frame.Block, Slot: 3,
			Body: append([]byte{frame.FormReverse}, make([]byte, 8)...)}},
		"of a short form that no zeros have": {{Kind: frame.Block, Slot: 3, Body: []byte{frame.FormShort, 0, 0, 12, 0, 0, 0, 0}}},
		"of a short form that is too long":   {{Kind: frame.Block, Slot: 4, Body: []byte{frame.FormShort, 0x88, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0}}},
		"of a short form that is cut short":  {group, good, {Kind: frame.Block, Slot: 4, Body: []byte{frame.FormShort, 0x88, 0, 8, 1, 0}}},
		"of a short form of another content": {{Kind: frame.Block, Slot: 4, Body: []byte{frame.FormShort, 0x88, 0, 9, 0, 0, 0, 0, 0}}},
		"with flips of too few elements":     {{Kind: frame.Block, Slot: 4, Body: append([]byte{frame.FormSummed}, make([]byte, 8)...)}},
		"of a CRC-32 that is cut short":      {group, good, {Kind: frame.Block, Slot: 4, Body: []byte{frame.FormSummedShort, 1, 2}}},
		"without a form":                     {{Kind: frame.Block, Slot: 3}},
		"of other bytes than its gather has": {larger, good},
	} {
		env := pathtest.NewEnv(t)
		wire := append(wireOf(declare(3, "lossless", 2), declare(4, "int8", 2), frame.Frame{Kind: frame.Bytes, Body: []byte("before")}), wireOf(frames...)...)
		wire = append(wire, wireOf(frame.Frame{Kind: frame.Bytes, Body: []byte("behind")}, frame.Frame{Kind: frame.CloseWrite})...)
		r, to := newReceiver(t, env, &pathtest.Cut{B: wire, Sizes: []int{1000}})
		if err := r.Run(); !errors.Is(err, frame.ErrFrame) {
			t.Errorf("a corrupt block %s: %v", name, err)
		}
		if string(to.got) != "before" {
			t.Errorf("a corrupt block %s: %q was delivered, want the bytes before it", name, to.got)
		}
		pathtest.Whole(t, env)
	}
}

// A block of the short form is delivered as its whole encoding is, alone and in a Gather.
func TestShortFormIsDelivered(t *testing.T) {
	const n = 4096
	c, err := pathtest.Codec("int8")
	if err != nil {
		t.Fatal(err)
	}
	elements := make([]float32, n)
	elements[7], elements[2000] = 0.25, -1
	e, err := feedback.NewEncoder(c, tensor.Float32, make([]float32, n))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4*n)
	tensor.RoundTo(b, elements, tensor.Float32)
	encoding, err := e.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	short := coder.ShortenBlock(c, append([]byte{frame.FormCoded}, encoding...), 0, 0, new(memory.Pool))
	if short[0] != frame.FormShort || len(short) > len(encoding)/4 {
		t.Fatalf("%d bytes of %d, of form %d", len(short), len(encoding), short[0])
	}
	block := func(body []byte) frame.Frame { return frame.Frame{Kind: frame.Block, Slot: 3, Body: body} }
	gather := frame.Frame{Kind: frame.Gather, Body: frame.AppendRun(nil, 4*n, 0)}
	var got [][]byte
	for _, frames := range [][]frame.Frame{{block(append([]byte{frame.FormCoded}, encoding...))}, {block(short)}, {gather, block(short)}} {
		env := pathtest.NewEnv(t)
		wire := append(wireOf(declare(3, "int8", n)), wireOf(append(frames, frame.Frame{Kind: frame.CloseWrite})...)...)
		r, to := newReceiver(t, env, &pathtest.Cut{B: wire, Sizes: []int{1000}})
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		got = append(got, to.got)
		pathtest.Whole(t, env)
	}
	if len(got[0]) != 4*n || !bytes.Equal(got[0], got[1]) || !bytes.Equal(got[0], got[2]) {
		t.Errorf("%d, %d and %d bytes were delivered, or others", len(got[0]), len(got[1]), len(got[2]))
	}
}

// The memory of a block whose encoding may be shortened is reserved for the whole encoding too.
func TestWholeEncodingIsReserved(t *testing.T) {
	const n, body = 4096, 100
	for text, whole := range map[string]bool{"lossless": false, "int8": true} {
		env := pathtest.NewEnv(t)
		r, _ := newReceiver(t, env, new(pathtest.Cut))
		if err := r.declare(declare(3, text, n)); err != nil {
			t.Fatal(err)
		}
		want := memory.Footprint(body) + memory.Footprint(4*n) + blockCost
		if whole {
			want += memory.Footprint(r.decode.slots[3].maxEncoded)
		}
		if err := r.reserve(frame.Block, 3, body); err != nil || r.memory.next.taken != want {
			t.Errorf("%s: %d bytes are reserved, %v; want %d", text, r.memory.next.taken, err, want)
		}
		r.memory.give(r.memory.take())
		pathtest.Whole(t, env)
	}
}

// The memory of a Gather's blocks is reserved together, by whatever codec they come: none of them then takes more.
// Bytes that they do not use are given back once all of them are read.
func TestGatheredBlocksAreReservedTogether(t *testing.T) {
	const n, blocks = 1000, 3
	for text, room := range map[string]int{"lossless": 0, "int8": memory.Footprint(4 * n)} {
		for _, body := range []int{1 + 4*n, 100} {
			env := pathtest.NewEnv(t)
			r, _ := newReceiver(t, env, new(pathtest.Cut))
			if err := errors.Join(r.declare(declare(3, text, n)), r.memory.reserveGathered(slices.Repeat([]int{4 * n}, blocks))); err != nil {
				t.Fatal(err)
			}
			taken := r.memory.next.taken
			for range blocks {
				if err := r.reserve(frame.Block, 3, body); err != nil || taken == 0 || r.memory.next.taken != taken {
					t.Errorf("%s: %d bytes are reserved, and then %d, %v", text, taken, r.memory.next.taken, err)
				}
			}
			want := blocks*(memory.Footprint(body)+memory.Footprint(4*n)+blockCost) + room
			if r.memory.giveUnused(); r.memory.next.taken != want {
				t.Errorf("%s: blocks of %d bytes keep %d bytes, want %d", text, body, r.memory.next.taken, want)
			}
			r.memory.give(r.memory.take())
			pathtest.Whole(t, env)
		}
	}
}

// A stream that ends without a CloseWrite has not ended in order.
func TestCutShort(t *testing.T) {
	env := pathtest.NewEnv(t)
	r, to := newReceiver(t, env, &pathtest.Cut{B: wireOf(frame.Frame{Kind: frame.Bytes, Body: []byte("half")}), Sizes: []int{1000}})
	if err := r.Run(); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || string(to.got) != "half" {
		t.Errorf("%q, %v", to.got, err)
	}
	pathtest.Whole(t, env)
}

// A Ref that names no value is a broken frame, wherever it stands; and so is one where no values are shared.
func TestRefToNothing(t *testing.T) {
	gather := frame.Frame{Kind: frame.Gather, Body: frame.AppendRun(frame.AppendLiteral(nil, []byte("x")), 4, 0)}
	ref := func(id uint64, size int) frame.Frame {
		return frame.Frame{Kind: frame.Ref, Body: frame.ValueRef{Epoch: 1, ID: id, Size: size}.Append(nil)}
	}
	for name, frames := range map[string][]frame.Frame{
		"alone":                 {ref(0, 4)},
		"in a gather":           {gather, ref(0, 4)},
		"of no bytes":           {gather, ref(1, 0)},
		"of more than was said": {gather, ref(1, 5)},
		"where none are shared": {ref(1, 4)},
		"gathered, none shared": {gather, ref(1, 4)},
	} {
		env := pathtest.NewEnv(t)
		f := pathtest.NewFeed(append(wireOf(frames...), wireOf(frame.Frame{Kind: frame.CloseWrite})...))
		r, to := newReceiver(t, env, f)
		if !strings.Contains(name, "shared") {
			r.conn.Values = oneValue{value: []byte("value")}
		}
		if !errors.Is(r.Run(), frame.ErrFrame) || len(to.got) > 0 {
			t.Errorf("%s is no broken frame, or %q was delivered", name, to.got)
		}
		pathtest.Whole(t, env)
	}
}

// oneValue is a peer's value cache that holds one value.
type oneValue struct {
	path.Values
	value []byte
}

func (oneValue) Ready() bool { return true }

func (v oneValue) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return v.value, func() {}, nil
}

// lateValue is a peer's value cache whose value comes late.
type lateValue struct {
	oneValue
	come <-chan time.Time // nil: it never comes
}

var errGone = errors.New("the connection waits no more")

func (v lateValue) Await(_ frame.Tag, _ frame.ValueRef, gone <-chan struct{}) ([]byte, func(), error) {
	select {
	case <-v.come:
		return v.value, func() {}, nil
	case <-gone:
		return nil, nil, errGone
	}
}

// A value that is on its way is awaited and delivered before a reset of the far app, a rest or the end. Behind a broken
// frame nothing is awaited.
func TestEndsAwaitValues(t *testing.T) {
	ref := frame.Frame{Kind: frame.Ref, Body: frame.ValueRef{Epoch: 1, ID: 1, Size: 4}.Append(nil)}
	for _, c := range []struct {
		last  frame.Frame
		comes bool
		want  error
	}{
		{frame.Frame{Kind: frame.CloseWrite}, true, nil}, {frame.Frame{Kind: frame.Reset}, true, path.ErrAppReset}, {frame.Frame{Kind: frame.Rest}, true, path.ErrRest},
		{frame.Frame{Kind: frame.Mask, Body: []byte("broken")}, false, errGone},
	} {
		env := pathtest.NewEnv(t)
		r, to := newReceiver(t, env, &pathtest.Cut{B: wireOf(ref, c.last), Sizes: []int{1000}})
		late := lateValue{oneValue: oneValue{value: []byte("late")}}
		want := ""
		if c.comes {
			late.come, want = time.After(10*time.Millisecond), "late"
		}
		near, _ := pathtest.TCPPair(t)
		r.conn.App, r.conn.Values, r.conn.Gone = app.Plain(near), late, make(chan struct{})
		if err := r.Run(); !errors.Is(err, c.want) || string(to.got) != want {
			t.Errorf("before a %v frame %q was delivered, %v; want %q, %v", c.last.Kind, to.got, err, want, c.want)
		}
		pathtest.Whole(t, env)
	}
}

// A part whose value has other bytes than the sender named is delivered nowhere, alone or in a Gather, nor are parts of
// fewer or more bytes than the Gather has.
func TestPartsOfOtherBytesAreNotDelivered(t *testing.T) {
	value := []byte("0123456789")
	gather := func(n int) frame.Frame { return frame.Frame{Kind: frame.Gather, Body: frame.AppendRun(nil, n, 0)} }
	for _, named := range []string{"3456", "3457"} {
		parts := frame.Frame{Kind: frame.Parts, Body: frame.AppendParts(nil, []frame.Part{
			{N: 4, Value: frame.ValueRef{Epoch: 1, ID: 1, Size: len(value)}, From: 3, Hash: frame.PartHash([]byte(named))}})}
		for name, frames := range map[string][]frame.Frame{"alone": {parts}, "in a gather": {gather(4), parts}, "in a smaller one": {gather(3), parts}, "in a larger one": {gather(5), parts}} {
			env := pathtest.NewEnv(t)
			r, to := newReceiver(t, env, pathtest.NewFeed(append(wireOf(frames...), wireOf(frame.Frame{Kind: frame.CloseWrite})...)))
			r.conn.Values = oneValue{value: value}
			err := r.Run()
			if right := named == "3456" && (name == "alone" || name == "in a gather"); right && (err != nil || string(to.got) != named) || !right && (!errors.Is(err, frame.ErrFrame) || len(to.got) > 0) {
				t.Errorf("%s, named %s: delivered %q, %v", name, named, to.got, err)
			}
			pathtest.Whole(t, env)
		}
	}
}

// Every frame that becomes more bytes waits for the peer's allowance, by the bytes that it takes and the bytes that it
// becomes, alone and in a Gather, and each frame that is read for the peer's turn: a hostile peer must not keep the
// processors and the memory's bandwidth from others by a few bytes for many.
func TestBlocksArePaced(t *testing.T) {
	const elements, size = 1000, 4 * 1000
	value := make([]byte, size)
	ref := frame.ValueRef{Epoch: 1, ID: 1, Size: size}
	block := coded(3, 0, "few")
	for name, f := range map[string]frame.Frame{
		"a block": block,
		"a ref":   {Kind: frame.Ref, Body: ref.Append(nil)},
		"parts":   {Kind: frame.Parts, Body: frame.AppendParts(nil, []frame.Part{{N: size, Value: ref, Hash: frame.PartHash(value)}})},
	} {
		for _, gathered := range []bool{false, true} {
			frames := []frame.Frame{declare(3, "lossless", elements)}
			if gathered {
				frames = append(frames, frame.Frame{Kind: frame.Gather, Body: frame.AppendRun(nil, size, 0)})
			}
			frames = append(frames, f, frame.Frame{Kind: frame.CloseWrite})
			env := pathtest.NewEnv(t)
			r, to := newReceiver(t, env, &pathtest.Cut{B: wireOf(frames...), Sizes: []int{1000}})
			r.conn.Values, r.conn.Gone = oneValue{value: value}, make(chan struct{})
			var waits [][2]int
			begun, ended := 0, 0
			r.conn.Schedule = func() func() {
				begun++
				return func() { ended++ }
			}
			r.conn.Pace = func(encoded, decoded int, gone <-chan struct{}) {
				if begun != ended+1 || gone != r.conn.Gone {
					t.Errorf("%s waits outside a turn, or for ever", name)
				}
				waits = append(waits, [2]int{encoded, decoded})
			}
			if err := r.Run(); err != nil || len(to.got) != size {
				t.Fatalf("%s, gathered %v: %d bytes, %v", name, gathered, len(to.got), err)
			}
			if want := [][2]int{{len(f.Body), size}}; !slices.Equal(waits, want) {
				t.Errorf("%s, gathered %v: waits for %v, want %v", name, gathered, waits, want)
			}
			if begun != 2 || ended != begun { // of the Declare, and of what follows
				t.Errorf("%s, gathered %v: %d turns have begun and %d have ended, want 2", name, gathered, begun, ended)
			}
			pathtest.Whole(t, env)
		}
	}
}

// bounded watches that an Env with so many connections never holds more than its budget and their spare bytes, until
// stop.
func bounded(t *testing.T, e *path.Env, connections int) (stop func()) {
	limit := e.Receiving.Size() + memory.Spare*int64(connections)
	var done atomic.Bool
	ended := make(chan int64)
	go func() {
		var peak int64
		for !done.Load() {
			peak = max(peak, e.Buffers.InUse())
			time.Sleep(time.Millisecond)
		}
		ended <- peak
	}()
	return func() {
		done.Store(true)
		if peak := <-ended; peak > limit {
			t.Errorf("%d bytes of buffers were in use, at most %d may be", peak, limit)
		}
	}
}

// A peer that opens many connections and announces a large block on each, but sends no block to its end, makes the
// proxy hold no more than its memory, and does not keep others from theirs.
func TestAnnouncedBlocksAreBounded(t *testing.T) {
	const connections = 40
	env := pathtest.NewEnv(t)
	env.Receiving = memory.NewBudget(32 << 20)
	env.MemoryWait = time.Hour // none will be had
	stop := bounded(t, env, connections)
	var hostile, honest memory.Share
	declare, block := pathtest.RawBlock(0, 4<<20)
	var feeds []*pathtest.Feed
	ended := make(chan error, connections)
	for range connections {
		f := pathtest.NewFeed(declare, block[:len(block)-1])
		feeds = append(feeds, f)
		r := New(&path.Conn{Env: env, Peer: "hostile", ReceiveShare: &hostile, Stream: f, Log: pathtest.Log(t)}, nil)
		go func() { ended <- r.Run() }()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		held, waiting := env.Receiving.Held(&hostile)
		if waiting > 0 && waiting+int(held/(8<<20)) == connections {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held, and %d connections wait", held, waiting)
		}
	}

	a, far := pathtest.TCPPair(t)
	declare, block = pathtest.RawBlock(0, 1<<20)
	f := pathtest.NewFeed(declare, block, wireOf(frame.Frame{Kind: frame.CloseWrite}))
	done := make(chan error, 1)
	r := New(&path.Conn{Env: env, Peer: "honest", ReceiveShare: &honest, App: app.Plain(a), Stream: f, Log: pathtest.Log(t)}, nil)
	go func() { done <- r.Run(); a.CloseWrite() }()
	if n, err := io.Copy(io.Discard, far); n != 1<<20 || err != nil {
		t.Errorf("beside a hostile peer %d bytes of a block of 1 MiB were delivered: %v", n, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	for _, f := range feeds { // connections that hold nothing find the bytes that the others give back
		f.Reset(0)
	}
	for range connections {
		if err := <-ended; err == nil {
			t.Error("a block that was cut short is no error")
		}
	}
	stop()
	pathtest.Whole(t, env)
}

// A block for which there is no memory in time, or ever, ends its connection. Blocks before it, for which the spare
// bytes have room, are delivered.
func TestNoMemoryForBlock(t *testing.T) {
	for name, size := range map[string]int{"in time": 128 << 10, "ever": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			env := pathtest.NewEnv(t)
			env.Receiving = memory.NewBudget(1 << 20)
			env.MemoryWait = time.Millisecond
			others := make([]memory.Share, 100) // that leave next to nothing
			for i := range others {
				others[i].Peer = new(memory.Share)
				for env.Receiving.Take(&others[i], 1<<10) {
				}
			}
			small, smallBlock := pathtest.RawBlock(0, memory.MinBlock)
			large, largeBlock := pathtest.RawBlock(1, size)
			f := pathtest.NewFeed(small, smallBlock, smallBlock, large, largeBlock, wireOf(frame.Frame{Kind: frame.CloseWrite}))
			r, to := newReceiver(t, env, f)
			if err := r.Run(); !errors.Is(err, memory.ErrMemory) {
				t.Errorf("Run = %v, want no memory", err)
			}
			if len(to.got) != 2*memory.MinBlock {
				t.Errorf("%d bytes were delivered; want the %d before", len(to.got), 2*memory.MinBlock)
			}
			for i := range others {
				held, _ := env.Receiving.Held(&others[i])
				env.Receiving.Give(&others[i], int(held))
			}
			pathtest.Whole(t, env)
		})
	}
}

// A peer may declare as many slots as there is memory for, and all memory that they took is given back.
func TestDeclaredSlotsAreBounded(t *testing.T) {
	env := pathtest.NewEnv(t)
	env.Receiving = memory.NewBudget(1 << 20)
	env.MemoryWait = time.Millisecond
	var wire []byte
	for slot := range uint32(10_000) {
		declare, _ := pathtest.RawBlock(slot, 4)
		wire = append(wire, declare...)
	}
	r, _ := newReceiver(t, env, pathtest.NewFeed(wire, wireOf(frame.Frame{Kind: frame.CloseWrite})))
	if err := r.Run(); !errors.Is(err, memory.ErrMemory) {
		t.Errorf("10,000 slots in 1 MiB: %v", err)
	}
	if n := len(r.decode.slots); n*slotCost > 1<<20 || n < 1000 {
		t.Errorf("%d slots were taken", n)
	}
	pathtest.Whole(t, env)
}

// A watched stream checks, whenever the receiver reads on, that no more memory is in use than was taken of the budget
// and may be spare.
type watched struct {
	*pathtest.Cut
	t   *testing.T
	env *path.Env
}

func (w watched) ReadChunk() ([]byte, error) {
	// A buffer is paid for before it is in use, and put back before the payment is given back.
	if inUse, limit := w.env.Buffers.InUse(), w.env.Receiving.Size()+memory.Spare; inUse > limit {
		w.t.Errorf("%d bytes of buffers are in use, at most %d may be", inUse, limit)
	}
	return w.Cut.ReadChunk()
}

// Whatever bytes a peer sends, the receiver takes no more memory than its budget and spare bytes, gives all of it back,
// and ends in an error or at the end.
func FuzzReceive(f *testing.F) {
	values := make([]byte, 16)
	for _, codec := range []string{"lossless", "wide", "3lc(s=1.75)", "int4", "topk(k=0.01)", "rice", "delta-binary", "drive"} {
		c, err := pathtest.Codec(codec)
		if err != nil {
			f.Fatal(err)
		}
		encoded := make([]byte, 8)
		if enc, err := c.NewEncoder(tensor.Float32, 4); err == nil {
			if b, err := enc.Append(nil, values); err == nil {
				encoded = b
			}
		}
		slot := declare(2, codec, 4)
		block := frame.Frame{Kind: frame.Block, Slot: 2, Body: append([]byte{frame.FormCoded}, encoded...)}
		f.Add(wireOf(slot, block))
		gather := frame.AppendRun(frame.AppendLiteral(nil, []byte("ab")), 16, 0)
		f.Add(wireOf(slot, frame.Frame{Kind: frame.Gather, Body: gather}, block))
		large := declare(2, codec, frame.MaxBlock/4)
		f.Add(wireOf(large, block, block))
	}
	f.Add([]byte{byte(frame.Bytes), 3, 1, 2, 3, byte(frame.CloseWrite), 0})
	f.Add([]byte{byte(frame.Block), 9, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		env := pathtest.NewEnv(t)
		env.Receiving = memory.NewBudget(1 << 20)
		env.MemoryWait = 0
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far)
		s := watched{&pathtest.Cut{B: bytes.Clone(b), Sizes: []int{5, 3000}}, t, env}
		r, _ := newReceiver(t, env, s)
		r.deliver.app = pipeWriter{near}
		r.Run()
		r.Wait()
		near.Close()
		pathtest.Whole(t, env)
	})
}

// Slots are decoded in turn, whatever their number of blocks and however small these are.
func TestManyBlocksInOrder(t *testing.T) {
	env := pathtest.NewEnv(t)
	frames := []frame.Frame{declare(0, "lossless", 2), declare(1, "wide", 2)}
	var want []byte
	for i := range 1000 {
		frames = append(frames, coded(uint32(i%2), uint64(i/2), string(rune('a'+i%26))))
		want = append(want, byte('a'+i%26), 0, 0, 0, 0, 0, 0, 0)
	}
	r, to := newReceiver(t, env, &pathtest.Cut{B: wireOf(append(slices.Clip(frames), frame.Frame{Kind: frame.CloseWrite})...), Sizes: []int{100, 3}})
	if err := r.Run(); err != nil || !bytes.Equal(to.got, want) {
		t.Errorf("%d bytes, %v; want %d in order", len(to.got), err, len(want))
	}
	pathtest.Whole(t, env)
}

// results is a parser whose tensors are results of sums.
type results struct{ parser.Parser }

func (p results) Next(b []byte) (parser.Segment, error) {
	seg, err := p.Parser.Next(b)
	if seg.Tensor.Size > 0 {
		seg.Tensor.Part, seg.Tensor.Whole = 1, true
	}
	return seg, err
}

// The result of a sum is compared with the app's input as it is delivered.
func TestDeliveredResultsDoubtTheJob(t *testing.T) {
	for name, same := range map[string]bool{"unlike inputs": false, "the same of all ranks": true} {
		env := pathtest.NewEnv(t)
		r := rand.New(rand.NewPCG(1, 2))
		own, sum := make([]float32, 4096), make([]float32, 4096)
		for i := range own {
			own[i] = float32(r.NormFloat64())
			if sum[i] = own[i] + float32(r.NormFloat64()); same {
				sum[i] = 2 * own[i]
			}
		}
		message, result := make([]byte, 4*len(own)), make([]byte, 4*len(own))
		tensor.FromFloat32(message, own, tensor.Float32)
		tensor.FromFloat32(result, sum, tensor.Float32)
		sample, ok := tensor.Contribute(tensor.Float32, message)
		if !ok {
			t.Fatal("no sample")
		}
		job := env.Residuals.Join("job")
		wire := wireOf(frame.Frame{Kind: frame.Bytes, Body: pathtest.ToyPiece(2, len(result), result)}, frame.Frame{Kind: frame.CloseWrite})
		_, learner := pathtest.Toy{}.New(parser.Conn{})
		c := &path.Conn{Env: env, Stream: &pathtest.Cut{B: wire, Sizes: []int{999}}, Peer: "far", Log: pathtest.Log(t)}
		c.Sums.Put(job, tensor.Tensor{Part: 1, Size: len(message)}, &sample)
		x := New(c, results{learner})
		x.deliver.app = new(taker)
		if err := x.Run(); err != nil {
			t.Fatal(err)
		}
		if job.Doubted() != same {
			t.Errorf("%s: the job is doubted: %v", name, job.Doubted())
		}
	}
}

// Small blocks are delivered in memory that is there already.
func TestSmallBlocksAllocateNothing(t *testing.T) {
	const blocks = 256
	env := pathtest.NewEnv(t)
	r, to := newReceiver(t, env, new(pathtest.Cut))
	raw := append([]byte{frame.FormRaw}, make([]byte, 4096)...)
	if err := r.declare(declare(3, "lossless", 1024)); err != nil {
		t.Fatal(err)
	}
	receive := func() {
		to.got = to.got[:0]
		for range blocks {
			r.decode.slots[3].took = 0 // no other core is asked, whatever the machine's load
			body := env.Buffers.Get(len(raw))
			copy(body, raw)
			if err := r.scheduled(frame.Frame{Kind: frame.Block, Slot: 3, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit := blocks / 4.0
	if require.Race { // sync.Pool drops some of its values then
		limit = 2 * blocks
	}
	if all := testing.AllocsPerRun(20, receive); all > limit {
		t.Errorf("%v allocations for %d blocks", all, blocks)
	}
	if len(to.got) != blocks*4096 {
		t.Errorf("%d bytes are delivered", len(to.got))
	}
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	pathtest.Whole(t, env)
}
