package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest/cputime"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// BenchLossy measures a value codec on float32 with (if it may have that) and without error feedback, in the blocks
// that it wants: on a tensor that a core's cache holds and, without -short, on one of 256 MiB. Each reports GB/s of
// elements, x-copy, that over Go's copy of the same bytes in the same run, and ratio, the elements' bytes over the
// encoding's.
func BenchLossy(b *testing.B, c codecs.Codec) {
	for _, size := range []int{160 << 10, 256 << 20} {
		if size > 1<<20 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			var t benchTensor
			if !c.Traits().Unbiased {
				b.Run("feedback", func(b *testing.B) { t.fill(b, c, size); t.bench(b, t.encode(b, t.fed)) })
			}
			b.Run("encode", func(b *testing.B) { t.fill(b, c, size); t.bench(b, t.encode(b, t.bare)) })
			b.Run("decode", func(b *testing.B) { t.fill(b, c, size); t.bench(b, t.decode(b)) })
		})
	}
}

// A benchTensor is a tensor in blocks, with a coder for each.
type benchTensor struct {
	src, dst  []byte // src has spare bytes more than dst
	size      int
	shift     int // where in src the latest value began: another at each step, as gradients are, and as aligned as they
	block     int // bytes
	fed, bare []codecs.Encoder
	dec       []codecs.Decoder
	out       []byte  // the latest encoding of any block: in the cache, as in the proxy
	ratio     float64 // of the latest encoding of all
}

const spare = 16 << 10 // bytes

// fill makes the tensor, once, and encodes it often enough that residuals are as in training.
func (t *benchTensor) fill(b *testing.B, c codecs.Codec, size int) {
	if t.src != nil {
		return
	}
	const part = 1 << 20 // bytes: random numbers are dear
	t.size = size
	// dst begins elsewhere in its page than src, so that no two buffers compete for the same lines of a cache.
	t.src, t.dst = make([]byte, 0, size+spare), make([]byte, size+1344)[1344:]
	for seed := uint64(0); len(t.src) < size+spare; seed++ {
		t.src = append(t.src, Gaussian.Fill(tensor.Float32, min(part, size+spare-len(t.src))/4, seed%16)...)
	}
	residual := make([]float32, size/4+176)[176:]
	t.block = c.Block(size)
	for at := 0; at < size; at += t.block {
		n := min(t.block, size-at) / 4
		fed, err1 := feedback.NewEncoder(c, tensor.Float32, residual[at/4:at/4+n])
		bare, err2 := c.NewEncoder(tensor.Float32, n)
		dec, err3 := c.NewDecoder(tensor.Float32, n)
		if err := errors.Join(err1, err2, err3); err != nil {
			b.Fatal(err)
		}
		t.fed, t.bare, t.dec = append(t.fed, fed), append(t.bare, bare), append(t.dec, dec)
	}
	encode := t.encode(b, t.fed)
	if c.Traits().Unbiased {
		encode = t.encode(b, t.bare)
	}
	for range max(2, (64<<20)/size) {
		encode()
	}
}

func (t *benchTensor) of(block int) (from, to int) {
	return block * t.block, min((block+1)*t.block, t.size)
}

func (t *benchTensor) encode(b *testing.B, encoders []codecs.Encoder) func() {
	return func() {
		t.each(b, encoders, func(out []byte) { t.out = out[:0] })
	}
}

// each encodes the next value and calls do with the encoding of each block, which may use the memory that was t.out.
func (t *benchTensor) each(b *testing.B, encoders []codecs.Encoder, do func(encoded []byte)) {
	t.shift = (t.shift + 64*61) % spare
	encoded := 0
	for i, e := range encoders {
		from, to := t.of(i)
		out, err := e.Append(t.out, t.src[t.shift:][from:to])
		if err != nil {
			b.Fatal(err)
		}
		encoded += len(out)
		do(out)
	}
	t.ratio = float64(t.size) / float64(encoded)
}

func (t *benchTensor) decode(b *testing.B) func() {
	var encoded [][]byte
	t.each(b, t.fed, func(out []byte) { encoded = append(encoded, bytes.Clone(out)) })
	return func() {
		for i, d := range t.dec {
			from, to := t.of(i)
			if err := d.Decode(t.dst[from:to], encoded[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func (t *benchTensor) bench(b *testing.B, op func()) {
	AgainstCopy(b, t.size, op)
	b.ReportMetric(t.ratio, "ratio")
}

// AgainstCopy runs op, which must process size bytes at each call, in turn with a copy of as many, and reports the
// medians as GB/s of op and as x-copy, how many times as fast as the copy it is: of processor time, where there is such
// a clock. (ns/op is both together.)
func AgainstCopy(b *testing.B, size int, op func()) {
	src, dst := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size) // written: fresh zeros are all the same page
	times := max(1, (2<<20)/size)                                            // until the clock is read, which takes time as well
	took := func(f func()) time.Duration {
		begin := cputime.Now()
		for range times {
			f()
		}
		return (cputime.Now() - begin) / time.Duration(times)
	}
	op1, copy1 := make([]time.Duration, 0, 1<<14), make([]time.Duration, 0, 1<<14)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	op()
	b.ReportAllocs()
	for b.Loop() {
		ofOp, ofCopy := took(op), took(func() { copy(dst, src) })
		if len(op1) < cap(op1) {
			op1, copy1 = append(op1, ofOp), append(copy1, ofCopy)
		}
	}
	slices.Sort(op1)
	slices.Sort(copy1)
	median := op1[len(op1)/2]
	b.ReportMetric(float64(size)/float64(median.Nanoseconds()), "GB/s")
	b.ReportMetric(float64(copy1[len(copy1)/2])/float64(median), "x-copy")
}
