package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Speed is how fast a codec is on one core, in 10^9 bytes of elements a second, and over the speed of Go's copy in the
// same round. Elements come from memory and go to memory; encodings stay in the cache, as in the proxy. On Linux it is
// processor time that counts.
type Speed struct {
	EncodeGBps   float64 `json:"encode_gbps"`
	DecodeGBps   float64 `json:"decode_gbps"`
	EncodeVsCopy float64 `json:"encode_vs_copy"`
	DecodeVsCopy float64 `json:"decode_vs_copy"`
}

// A memory is what is copied, encoded and decoded in each round.
type memory struct {
	src, dst []byte
	encoded  []byte
}

func newMemory(n int) *memory { return &memory{src: make([]byte, n), dst: make([]byte, n)} }

// speed measures c on d, repeated over the whole memory: each repetition is a tensor with coders of its own. The first
// round is not counted: it makes pages and pools.
func (m *memory) speed(ctx context.Context, c cutter, d Data, rounds int) (Speed, error) {
	size := len(d.Row(0))
	var tensors [][]block
	for at := 0; at == 0 || at+size <= len(m.src); at += size {
		blocks, err := c.cut(size)
		if err != nil {
			return Speed{}, err
		}
		tensors = append(tensors, blocks)
	}
	if len(m.src) < size {
		m.src, m.dst = make([]byte, size), make([]byte, size)
	}
	for i := range tensors {
		copy(m.src[i*size:], d.Row(i%d.Rows))
	}
	runtime.LockOSThread() // whose clock now reads
	defer runtime.UnlockOSThread()
	var all [4][]float64
	for r := range rounds + 1 {
		if err := ctx.Err(); err != nil {
			return Speed{}, err
		}
		copying := m.copy()
		encoding, decoding, err := m.round(tensors, size)
		if err != nil {
			return Speed{}, err
		}
		if r == 0 {
			continue
		}
		for i, v := range []float64{encoding, decoding, encoding / copying, decoding / copying} {
			all[i] = append(all[i], v)
		}
	}
	return Speed{median(all[0]), median(all[1]), median(all[2]), median(all[3])}, nil
}

// copy returns the speed of copying all memory once.
func (m *memory) copy() (gbps float64) {
	begin := now()
	copy(m.dst, m.src)
	return rate(len(m.src), now()-begin)
}

// round encodes and decodes all tensors once, block by block, and returns the speed of each.
func (m *memory) round(tensors [][]block, size int) (encoding, decoding float64, err error) {
	var encode, decode time.Duration
	for i, blocks := range tensors {
		src, dst := m.src[i*size:(i+1)*size], m.dst[i*size:(i+1)*size]
		for j := range blocks {
			begin := now()
			out, raw, err := blocks[j].encode(m.encoded[:0], src)
			encoded := now()
			if err != nil {
				return 0, 0, err
			}
			m.encoded = out
			if err := blocks[j].decode(dst, out, raw); err != nil {
				return 0, 0, err
			}
			encode, decode = encode+encoded-begin, decode+now()-encoded
		}
	}
	n := len(tensors) * size
	return rate(n, encode), rate(n, decode), nil
}

func rate(n int, d time.Duration) (gbps float64) { return float64(n) / float64(max(d, 1)) }

func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
