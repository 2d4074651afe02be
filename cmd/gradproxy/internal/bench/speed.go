package bench

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/codecs/codectest/cputime"
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

// longRound is the processor time after which a round begins no other tensor: a codec that takes longer is far slower
// than any memory, and no better measured by more of it.
const longRound = 150 * time.Millisecond

// maxPlaces bounds the tensors of a round, so that memory goes to values even where they are tiny.
const maxPlaces = 1 << 18

// batchBytes are the tensors, in bytes, that are encoded one after another before they are decoded. Decoded values that
// a processor has yet to write back delay the encoding of some values after them.
const batchBytes = 4 << 20

// A workspace is memory that is copied, encoded and decoded in each round.
type workspace struct {
	src, dst []byte
	encoded  []byte // of a batch
	blocks   []encoding
}

// An encoding is a part of a workspace's encoded.
type encoding struct {
	end  int
	form form
}

func newWorkspace(n int) *workspace { return &workspace{src: make([]byte, n), dst: make([]byte, n)} }

// A place is where a value of a tensor lies in a memory, and its coders.
type place struct {
	off, size int
	blocks    []block // nil: not yet made
}

// speed measures c on d, repeated over the whole memory: each repetition is a tensor with coders of its own. The first
// round is not counted: it makes pages, coders and pools, and settles how much of the memory the others code.
func (m *workspace) speed(ctx context.Context, c cutter, d Data, rounds int) (Speed, error) {
	places := m.fill(d)
	runtime.LockOSThread() // the processor time is this thread's
	defer runtime.UnlockOSThread()
	var all [4][]float64
	for r := range rounds + 1 {
		if err := ctx.Err(); err != nil {
			return Speed{}, err
		}
		copying := m.copy()
		n, encoding, decoding, err := m.round(c, places)
		if err != nil {
			return Speed{}, err
		}
		if r == 0 {
			places = places[:n]
			continue
		}
		for i, v := range []float64{encoding, decoding, encoding / copying, decoding / copying} {
			all[i] = append(all[i], v)
		}
	}
	return Speed{median(all[0]), median(all[1]), median(all[2]), median(all[3])}, nil
}

// fill fills the memory with values of d, step by step and again and again, and makes it larger if there is no room for
// a single one. It leaves the rest as it is where there are maxPlaces.
func (m *workspace) fill(d Data) (places []place) {
	off := 0
	for step := 0; ; step++ {
		for _, t := range d.Tensors {
			value := t.Row(step % t.Rows)
			if off+len(value) > len(m.src) || len(places) == maxPlaces {
				if off > 0 {
					return places
				}
				m.src, m.dst = make([]byte, len(value)), make([]byte, len(value))
			}
			copy(m.src[off:], value)
			places = append(places, place{off: off, size: len(value)})
			off += len(value)
		}
	}
}

// copy returns the speed of copying all memory once.
func (m *workspace) copy() (gbps float64) {
	begin := cputime.Now()
	copy(m.dst, m.src)
	return rate(len(m.src), cputime.Now()-begin)
}

// round encodes and decodes tensors once, block by block, and returns of how many, and the speed of each.
func (m *workspace) round(c cutter, places []place) (n int, encoding, decoding float64, err error) {
	var encode, decode time.Duration
	size := 0
	for n < len(places) && encode+decode < longRound {
		batch, bytes := places[n:n], 0
		for n < len(places) && (bytes == 0 || bytes+places[n].size <= batchBytes) {
			p := &places[n]
			if p.blocks == nil {
				if p.blocks, err = c.cut(p.size); err != nil {
					return n, 0, 0, err
				}
			}
			batch, bytes, n = batch[:len(batch)+1], bytes+p.size, n+1
		}
		begin := cputime.Now()
		if err := m.encode(batch); err != nil {
			return n, 0, 0, err
		}
		encoded := cputime.Now()
		if err := m.decode(batch); err != nil {
			return n, 0, 0, err
		}
		encode, decode, size = encode+encoded-begin, decode+cputime.Now()-encoded, size+bytes
	}
	return n, rate(size, encode), rate(size, decode), nil
}

// encode sets encoded and blocks to the encodings of a batch.
func (m *workspace) encode(batch []place) error {
	m.encoded, m.blocks = m.encoded[:0], m.blocks[:0]
	for _, p := range batch {
		for i := range p.blocks {
			out, form, err := p.blocks[i].encode(m.encoded, m.src[p.off:p.off+p.size])
			if err != nil {
				return err
			}
			m.encoded, m.blocks = out, append(m.blocks, encoding{len(out), form})
		}
	}
	return nil
}

// decode decodes them.
func (m *workspace) decode(batch []place) error {
	blocks, from := m.blocks, 0
	for _, p := range batch {
		for i := range p.blocks {
			if err := p.blocks[i].decode(m.dst[p.off:p.off+p.size], m.encoded[from:blocks[0].end], blocks[0].form); err != nil {
				return err
			}
			from, blocks = blocks[0].end, blocks[1:]
		}
	}
	return nil
}

func rate(n int, d time.Duration) (gbps float64) { return float64(n) / float64(max(d, 1)) }

func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
