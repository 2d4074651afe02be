// Package pathtest helps tests of the path: an Env, streams without a tunnel, frames of a peer, and codecs that count
// their blocks.
package pathtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// NewEnv returns an Env with 256 MiB for each direction and one core, whose policy has the given rules. The test's end
// ends it.
func NewEnv(t testing.TB, rules ...policy.Rule) *path.Env {
	t.Helper()
	chosen, err := policy.New(rules, Codec)
	if err != nil {
		t.Fatal(err)
	}
	lossless, err := Codec("lossless")
	if err != nil {
		t.Fatal(err)
	}
	pool := pipe.NewPool(1)
	t.Cleanup(pool.Close)
	return &path.Env{Buffers: new(memory.Pool), Sending: memory.NewBudget(256 << 20), Receiving: memory.NewBudget(256 << 20), MemoryWait: memory.Wait,
		Pool: pool, Cores: 1, Lossless: lossless, Codecs: Codec, Policy: func() policy.Policy { return chosen }, Lasting: func(string) bool { return false },
		Residuals: residual.New(1<<30, residual.Events{Forgot: func(int) {}}), Tensors: new(tensors.Table), Connections: func() int { return 1 }, Metrics: path.NoMetrics{}}
}

// Whole checks that nothing is taken of an Env's memory.
func Whole(t testing.TB, e *path.Env) {
	t.Helper()
	if s, r, n := e.Sending.Used(), e.Receiving.Used(), e.Buffers.InUse(); s != 0 || r != 0 || n != 0 {
		t.Errorf("%d and %d bytes of the budgets and %d bytes of buffers are not given back", s, r, n)
	}
}

// Log returns a log that the test shows.
func Log(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// TCPPair returns both ends of a TCP connection on loopback, which the test's end closes.
func TCPPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	a, b, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Connect returns both ends of a TCP connection on loopback, which the caller must close.
func Connect() (a, b *net.TCPConn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	accepted, err := ln.Accept()
	if err != nil {
		dialed.Close()
		return nil, nil, err
	}
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn), nil
}

// Random returns n bytes: runs of noise and runs of zeros.
func Random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; {
		run := min(1+r.IntN(6000), n-i)
		if r.IntN(2) == 0 {
			for part := b[i : i+run]; len(part) > 0; {
				part = part[copy(part, binary.LittleEndian.AppendUint64(nil, r.Uint64())):]
			}
		}
		i += run
	}
	return b
}

// A Sink is a stream that keeps the bytes that are written to it, and has none to read.
type Sink struct {
	mu   sync.Mutex
	sent []byte
}

func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, p...)
	return len(p), nil
}

// Sent returns the bytes that were written.
func (s *Sink) Sent() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.sent)
}

func (s *Sink) WriteMore(p []byte) (int, error)         { return s.Write(p) }
func (s *Sink) Flush()                                  {}
func (s *Sink) Path() (rtt time.Duration, rate float64) { return 0, 0 }
func (s *Sink) ReadChunk() ([]byte, error)              { return nil, io.EOF }
func (s *Sink) CloseWrite() error                       { return nil }
func (s *Sink) Close() error                            { return nil }
func (s *Sink) Reset(tunnel.Code)                       {}

// A Cut is a stream of the given bytes, in pieces of the given sizes, over and over.
type Cut struct {
	Sink
	B     []byte
	Sizes []int
	i     int
}

func (r *Cut) ReadChunk() ([]byte, error) {
	if len(r.B) == 0 {
		return nil, io.EOF
	}
	n := min(max(r.Sizes[r.i%len(r.Sizes)], 1), len(r.B))
	r.i++
	chunk := bytes.Clone(r.B[:n])
	r.B = r.B[n:]
	return chunk, nil
}

// A Feed is a stream of a hostile peer: the bytes that were fed are read, and then nothing comes until it is reset.
type Feed struct {
	Sink
	chunks chan []byte
	reset  chan struct{}
	once   sync.Once
}

// NewFeed returns a Feed of the given bytes.
func NewFeed(wire ...[]byte) *Feed {
	f := &Feed{chunks: make(chan []byte, 1000), reset: make(chan struct{})}
	f.Feed(wire...)
	return f
}

// Feed adds bytes.
func (f *Feed) Feed(wire ...[]byte) {
	for _, b := range wire {
		for c := range slices.Chunk(b, 256<<10) {
			f.chunks <- c
		}
	}
}

func (f *Feed) ReadChunk() ([]byte, error) {
	select {
	case c := <-f.chunks:
		return bytes.Clone(c), nil
	case <-f.reset:
		return nil, &tunnel.ResetError{Peer: "far", Code: frame.ResetByApp, Remote: true}
	}
}

func (f *Feed) Reset(tunnel.Code) { f.once.Do(func() { close(f.reset) }) }

// RawBlock returns the frames of a slot's declaration and of a block of n bytes in it.
func RawBlock(slot uint32, n int) (declare, block []byte) {
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: n / 4, Key: uint64(slot) + 1}
	declare = frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: slot, Body: d.Append(nil)})
	return declare, frame.Append(nil, frame.Frame{Kind: frame.Block, Slot: slot, Body: append([]byte{frame.FormRaw}, make([]byte, n)...)})
}

// Codec knows "lossless", which is the test's: it leaves out trailing zeros and counts its blocks, so that a decoder
// that is given them out of order fails; "wide", the same for whole tensors; "int4", the same too; "broken", which
// panics; and the other codecs as they are.
func Codec(text string) (codecs.Codec, error) {
	switch text {
	case "lossless", "broken", "int4", "wide":
		return counting(text), nil
	}
	return all.New(text)
}

type counting string

func (c counting) String() string          { return string(c) }
func (c counting) MaxEncodedLen(n int) int { return 8*n + 8 }
func (c counting) Traits() codecs.Traits   { return codecs.Traits{Lossless: true} }
func (c counting) Block(size int) int {
	if c == "wide" {
		return size
	}
	return 4096
}
func (c counting) NewEncoder(tensor.DType, int) (codecs.Encoder, error) { return &coder{c: c}, nil }
func (c counting) NewDecoder(tensor.DType, int) (codecs.Decoder, error) { return &coder{c: c}, nil }

type coder struct {
	c counting
	n uint64
}

func (e *coder) Append(dst, src []byte) ([]byte, error) {
	if e.c == "broken" {
		panic("broken on purpose")
	}
	short := bytes.TrimRight(src, "\x00")
	if len(short) == len(src) {
		return dst, codecs.ErrUnsuited
	}
	dst = binary.LittleEndian.AppendUint64(dst, e.n)
	e.n++
	return append(dst, short...), nil
}

func (e *coder) Decode(dst, src []byte) error {
	if len(src) < 8 || len(src)-8 > len(dst) || binary.LittleEndian.Uint64(src) != e.n {
		return fmt.Errorf("%w: block %d", codecs.ErrCorrupt, e.n)
	}
	e.n++
	clear(dst[copy(dst, src[8:]):])
	return nil
}
