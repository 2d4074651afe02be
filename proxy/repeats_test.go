package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A trickle writes b in pieces, and waits behind some of them for longer than a block waits for its rest.
func trickle(t *testing.T, r *rand.Rand, to io.Writer, b []byte, waits int) {
	for i := range waits + 1 {
		n := len(b)
		if i < waits {
			n = r.IntN(len(b))
		}
		if _, err := to.Write(b[:n]); err != nil {
			t.Error(err)
		}
		if b = b[n:]; i < waits {
			time.Sleep(12 * time.Millisecond)
		}
	}
}

// Bytes that come again cross once, though they do not shrink: to the same receiver or to others, wherever the sender
// pauses amid them, and while the first copy of them is still under way.
func TestRepeatsCrossOnce(t *testing.T) {
	for name, toy := range map[string]pathtest.Toy{"plain": {Role: tensor.Exact}, "masked": {Role: tensor.Exact, Mask: tensor.Mask{1, 0, 0xff, 77}}, "gradients": {Role: tensor.Gradient, Proof: tensor.ByWire, CRC32: true}} {
		t.Run(name, func(t *testing.T) {
			toy.Base, toy.Repeats, toy.Flow = true, true, true
			repeatsCrossOnce(t, toy)
		})
	}
}

func repeatsCrossOnce(t *testing.T, toy pathtest.Toy) {
	const size, receivers = 200_000, 3
	p := newPairWith(t, func(_ string, c *Config) { c.Values = 4 << 20 }, []parser.Protocol{toy})
	var crossed atomic.Int64
	p.mu.Lock()
	p.tamper = func(b []byte) { crossed.Add(int64(len(b))) }
	p.mu.Unlock()
	waitFor(t, p.near.values().Ready)
	waitFor(t, p.far.values().Ready)
	r := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(r.Uint32())
	}
	done := make(chan []byte, receivers)
	for i := range receivers {
		c, s := p.connect(t)
		random := rand.New(rand.NewPCG(3, uint64(i)))
		const copies = 3
		go func() {
			for k := range copies {
				trickle(t, random, c, pathtest.ToyPiece(byte(k%2), size, value), 6) // copies of two tensors
			}
		}()
		go func(s *net.TCPConn) {
			got := make([]byte, copies*(8+size))
			io.ReadFull(s, got)
			done <- got
		}(s)
	}
	for range receivers {
		got := <-done
		for len(got) > 0 {
			if !bytes.Equal(got[8:8+size], value) {
				t.Fatal("a receiver got other bytes than were sent")
			}
			got = got[8+size:]
		}
	}
	// At each of the 54 pauses bytes up to the next mark cross again: 200 to 600 at a pause, on the average of a
	// process. Each process has other marks. If blocks that a pause leaves unfinished crossed by themselves, all would
	// be over 300,000.
	if limit := int64(size * 5 / 4); crossed.Load() > limit {
		t.Errorf("%d bytes crossed, want %d at most for nine copies of %d", crossed.Load(), limit, size)
	}
	t.Logf("%d bytes crossed for nine copies of %d", crossed.Load(), size)
}

// A value that was cut off, since its sender gave the connection up, crosses once as well, though another sender's
// value of the tensor comes in between: of the copy that comes whole on a later connection only the rest does.
func TestCutOffValueCrossesOnce(t *testing.T) {
	for name, flow := range map[string]bool{"a sender that may wait": true, "a sender that does not": false} {
		t.Run(name, func(t *testing.T) {
			const size, sent = 200_000, 190_000
			p := newPairWith(t, func(_ string, c *Config) { c.Values = 4 << 20 }, []parser.Protocol{pathtest.Toy{Role: tensor.Exact, Base: true, Repeats: true, Flow: flow}})
			var crossed atomic.Int64
			p.mu.Lock()
			p.tamper = func(b []byte) { crossed.Add(int64(len(b))) }
			p.mu.Unlock()
			waitFor(t, p.near.values().Ready)
			waitFor(t, p.far.values().Ready)
			value, other := make([]byte, size), make([]byte, size)
			rand.NewChaCha8([32]byte{1}).Read(value)
			rand.NewChaCha8([32]byte{2}).Read(other)
			message := pathtest.ToyPiece(1, size, value)
			for _, b := range [][]byte{message[:sent], pathtest.ToyPiece(1, size, other), message} {
				c, s := p.connect(t)
				go func() {
					c.Write(b)
					c.CloseWrite()
				}()
				got, err := io.ReadAll(s)
				if err != nil || !bytes.Equal(got, b) {
					t.Fatalf("%d bytes came of %d; %v", len(got), len(b), err)
				}
				c.Close()
				s.Close()
			}
			if limit := int64(2 * size * 9 / 8); crossed.Load() > limit {
				t.Errorf("%d bytes crossed, want %d at most for %d bytes of a value, another of %d, and all of the first", crossed.Load(), limit, sent, size)
			}
		})
	}
}
