package gloo

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// floods are sequences of headers that make parsers hold as much as headers can.
var floods = map[string]func(i int) (slot uint64, length int){
	"new collectives": func(i int) (uint64, int) { return uint64(allReduce)<<56 | uint64(i)<<24, 512 + i%9 },
	"of every length": func(i int) (uint64, int) { return uint64(allReduce)<<56 | uint64(i)<<24, 512 + i },
}

// flood returns n notifications of transfers, which no payload follows.
func flood(n int, header func(i int) (slot uint64, length int)) (b []byte) {
	for i := range n {
		slot, length := header(i)
		for _, x := range []uint64{preambleLen, uint64(notifySendReady), slot, 0, uint64(length), 0} {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
	}
	return b
}

// messages returns n payloads of constant tags, of ever other lengths.
func messages(n int) (b []byte) {
	for i := range n {
		length := 1 + i%8
		for _, x := range []uint64{uint64(preambleLen + length), uint64(sendUnboundBuffer), uint64(broadcast)<<56 | 7<<24, 0, uint64(length), 0} {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		b = append(b, make([]byte, length)...)
	}
	return b
}

// A parser tells of nearly all that it holds, whatever it is given: a budget can rely on it.
func TestHeldFollowsTheHeap(t *testing.T) {
	given := map[string][]byte{"payloads of one tag": messages(4_000)}
	for name, header := range floods {
		given[name] = flood(4_000, header)
	}
	for name, b := range given {
		t.Run(name, func(t *testing.T) {
			const n = 4
			before := liveHeap()
			parsers := make([]parser.Parser, 0, 2*n)
			for range n {
				client, server := new(Protocol).New(parser.Conn{})
				parsers = append(parsers, client, server)
			}
			told := 0
			for _, p := range parsers {
				for at := 0; at < len(b); {
					seg, err := p.Next(b[at:min(at+4<<10, len(b))])
					if err != nil {
						t.Fatal(err)
					}
					at += seg.Len
				}
				told += parser.Held(p)
			}
			really := liveHeap() - before
			runtime.KeepAlive(parsers)
			t.Logf("%d bytes of stream: %d bytes held, %d told", len(b), really/len(parsers), told/len(parsers))
			if told < really*4/5 || told > really*3/2 {
				t.Errorf("parsers tell that they hold %d bytes, and hold %d", told, really)
			}
		})
	}
}

func liveHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
