package gloo

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
)

// Whatever ops come, in whatever number, memory is bounded.
func TestMemoryIsBounded(t *testing.T) {
	ops := 60_000
	if require.Race {
		ops = 20_000
	}
	for name, op := range map[string]func(rnd *rand.Rand, i int) []byte{
		"announcements of ever new collectives": func(rnd *rand.Rand, i int) []byte {
			return appendOp(nil, notifySendReady, slotOf(allReduce, uint32(i)), crumb+rnd.IntN(9))
		},
		"announcements with random tags": func(rnd *rand.Rand, i int) []byte {
			return appendOp(nil, notifySendReady, slotOf(allReduce, rnd.Uint32()), crumb+rnd.IntN(1000))
		},
		"messages of one collective, all of other lengths": func(rnd *rand.Rand, i int) []byte {
			return appendOp(nil, sendUnboundBuffer, slotOf(allReduce, 0), 1+i%700)
		},
		"messages that nearly repeat": func(rnd *rand.Rand, i int) []byte {
			return appendOp(nil, sendUnboundBuffer, slotOf(allReduce, 0), crumb+i%97/96*(i/97%5))
		},
		"all-gathers and broadcasts": func(rnd *rand.Rand, i int) []byte {
			if i%2 == 0 {
				return appendOp(nil, sendUnboundBuffer, slotOf(allGather, uint32(i)), 4)
			}
			return appendOp(nil, sendUnboundBuffer, slotOf(broadcast, uint32(i)), 8*rnd.IntN(40))
		},
	} {
		rnd := rand.New(rand.NewPCG(1, 2))
		client, _ := new(Protocol).New(parser.Conn{Sums: parser.SumsGradients})
		before := heap()
		for i := range ops {
			if _, err := next(client, op(rnd, i)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("%s: %d bytes after %d ops", name, grown, ops)
		}
		runtime.KeepAlive(client)
	}
}

// heap returns the bytes of memory in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A length is believed, but nothing is allocated by it.
func TestHugeLengths(t *testing.T) {
	for _, k := range []kind{allReduce, broadcast, allGather, pointToPoint} {
		client, _ := new(Protocol).New(parser.Conn{Sums: parser.SumsGradients})
		const huge = 1 << 62
		b := appendOp(nil, notifySendReady, slotOf(k, 3), 8)
		putOp(b, sendUnboundBuffer, huge)
		before := heap()
		v, err := next(client, append(b, 1, 2, 3))
		if err != nil || v.Size != huge || heap()-before > 1<<20 {
			t.Errorf("kind %d: %+v, %v, %d bytes", k, v, err, heap()-before)
		}
		runtime.KeepAlive(client)
	}
}

// putOp makes the preamble b that of a payload of length bytes.
func putOp(b []byte, code opcode, length uint64) {
	for i, x := range []uint64{preambleLen + length, uint64(code)} {
		for k := range 8 {
			b[8*i+k] = byte(x >> (8 * k))
		}
	}
	for k := range 8 {
		b[32+k] = byte(length >> (8 * k))
	}
}
