package bench

import (
	"runtime"

	"github.com/gradproxy/gradproxy/codecs"
)

// Memory is the memory that coding takes, in bytes for each value of a tensor.
type Memory struct {
	// EncoderBytes and DecoderBytes are held from one step to the next, the residual of error feedback (4)
	// included. Tables and pools, which blocks of one shape share, are not.
	EncoderBytes float64 `json:"encoder_bytes_per_value"`
	DecoderBytes float64 `json:"decoder_bytes_per_value"`
	// AllocatedBytes are allocated to encode and decode one more step, and freed again by the garbage collector.
	AllocatedBytes float64 `json:"allocated_bytes_per_value"`
}

// minValues is how many values are coded where memory is measured: with fewer, the other allocations of this process
// would be seen.
const minValues = 1 << 19

// maxTensors are tensors that are enough as well, however small they are.
const maxTensors = 1 << 14

// footprint measures c on d's first tensors, again and again if they are few.
func footprint(c cutter, d Data) (Memory, error) {
	var f fleet
	for n := 0; n < minValues && len(f.values) < maxTensors; {
		for _, t := range d.Tensors {
			if n < minValues && len(f.values) < maxTensors {
				f.values = append(f.values, t.Row(0))
				n += t.Cols
			}
		}
	}
	// Codecs make tables and fill pools when they are first used.
	if err := f.enlist(c); err != nil {
		return Memory{}, err
	}
	if err := f.step(); err != nil {
		return Memory{}, err
	}
	n := 0
	for _, v := range f.values {
		n += len(v) / c.dtype.Size()
	}
	var m Memory
	// The memory that coders hold is seen when they are gone. Some coders take it when they are first used.
	both := live()
	f.encoders = nil
	decoders := live()
	f.decoders = nil
	none := live()
	m.EncoderBytes = float64(max(0, both-decoders)) / float64(n)
	m.DecoderBytes = float64(max(0, decoders-none)) / float64(n)
	if err := f.enlist(c); err != nil {
		return Memory{}, err
	}
	if err := f.step(); err != nil {
		return Memory{}, err
	}
	before := allocated()
	if err := f.step(); err != nil {
		return Memory{}, err
	}
	m.AllocatedBytes = float64(allocated()-before) / float64(n)
	runtime.KeepAlive(f)
	return m, nil
}

// A fleet is the coders of many blocks, with their values and encodings.
type fleet struct {
	values   [][]byte
	blocks   []part
	encoders []codecs.Encoder
	decoders []codecs.Decoder
	encoded  []byte
	decoded  []byte
}

// A part is where a block lies in a value.
type part struct{ value, off, size int }

// enlist makes the coders.
func (f *fleet) enlist(c cutter) error {
	f.blocks = f.blocks[:0]
	for i, v := range f.values {
		blocks, err := c.cut(len(v))
		if err != nil {
			return err
		}
		for _, b := range blocks {
			f.blocks = append(f.blocks, part{i, b.off, b.size})
			f.encoders, f.decoders = append(f.encoders, b.encoder), append(f.decoders, b.decoder)
			f.decoded = make([]byte, max(len(f.decoded), b.size))
		}
	}
	return nil
}

// step encodes and decodes every block once.
func (f *fleet) step() error {
	for i, p := range f.blocks {
		b := block{off: p.off, size: p.size, encoder: f.encoders[i], decoder: f.decoders[i]}
		out, raw, err := b.encode(f.encoded[:0], f.values[p.value])
		if err != nil {
			return err
		}
		f.encoded = out
		b.off = 0
		if err := b.decode(f.decoded, out, raw); err != nil {
			return err
		}
	}
	return nil
}

// live returns the bytes of the heap that are in use. Pools are emptied by it.
func live() int64 {
	runtime.GC()
	runtime.GC() // the content of pools survives one
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// allocated returns the bytes that were ever allocated.
func allocated() int64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.TotalAlloc)
}
