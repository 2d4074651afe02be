package all

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// Decoders hold little between blocks: a peer may have a receiver make a great many.
func TestDecodersHoldLittle(t *testing.T) {
	const n, count, limit = 1 << 16, 50, 1 << 10
	r := rand.New(rand.NewPCG(13, 14))
	var x []byte
	for range n {
		x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(r.NormFloat64()*1e-3)))
	}
	dst := make([]byte, len(x))
	for _, name := range Names() {
		c, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		if !codecs.Lossy(c) {
			continue
		}
		e, err := c.NewEncoder(tensor.Float32, n)
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.Append(nil, x)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		decoders := make([]codecs.Decoder, count)
		before := live()
		for i := range decoders {
			if decoders[i], err = c.NewDecoder(tensor.Float32, n); err == nil {
				err = decoders[i].Decode(dst, out)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		held := live() - before
		runtime.KeepAlive(decoders)
		t.Logf("%s: %d bytes a decoder", name, held/count)
		if held/count > limit {
			t.Errorf("a decoder of %s for %d values holds %d bytes, want at most %d", name, n, held/count, limit)
		}
	}
}

// live returns the bytes of the heap that are in use, without the contents of pools.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
