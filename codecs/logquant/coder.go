package logquant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

func (m method) NewEncoder(n int) (codecs.ValueEncoder, error) { return coder{m, n}, nil }
func (m method) NewDecoder(n int) (codecs.ValueDecoder, error) { return coder{m, n}, nil }

// A coder is both an encoder and a decoder: neither remembers anything.
type coder struct {
	method
	n int
}

// log2 returns the logarithm of a > 0, rounded to the nearest integer, at most 127.
func log2(a float32) int {
	const (
		fraction = 23       // bits of a float32
		root     = 0x3504f4 // the fraction of the least float32 above √2; no number is √2 itself
	)
	bits := math.Float32bits(a)
	if bits < 1<<fraction { // subnormal, but not as a float32 of more exponents
		return log2(a*(1<<fraction)) - fraction
	}
	return min(int((bits+1<<fraction-root)>>fraction)-127, maxLog)
}

// Append implements codecs.ValueEncoder.
func (c coder) Append(dst []byte, src []float32) ([]byte, error) {
	c.check(len(src))
	begin := len(dst)
	for from := 0; from < c.n; from += c.block {
		x := src[from:min(from+c.block, c.n)]
		largest := absmax.Of(x)
		if !(largest <= math.MaxFloat32) {
			return dst[:begin], fmt.Errorf("%w: logquant: the largest of values %d to %d is %v",
				codecs.ErrUnsuited, from, from+len(x)-1, largest)
		}
		top := zeros
		if largest > 0 {
			top = log2(largest)
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(int16(top)))
		if largest > 0 {
			dst = c.appendCodes(dst, x, top)
		}
	}
	return dst, nil
}

func (c coder) appendCodes(dst []byte, x []float32, top int) []byte {
	w := bitio.NewWriter(dst)
	bits, levels := uint(c.bits), c.levels()
	for _, v := range x {
		b := math.Float32bits(v)
		code := 0
		if a := math.Float32frombits(b &^ (1 << 31)); a > 0 {
			if code = top + 1 - log2(a); code > levels {
				code = 0
			}
		}
		sign := uint64(b >> 31)
		if code == 0 {
			sign = 0
		}
		w.Write(sign<<(bits-1)|uint64(code), bits)
	}
	return w.Bytes()
}

// Decode implements codecs.ValueDecoder.
func (c coder) Decode(dst []float32, src []byte) error {
	c.check(len(dst))
	var table [1 << maxBits]float32
	for from := 0; from < c.n; from += c.block {
		y := dst[from:min(from+c.block, c.n)]
		if len(src) < topLen {
			return fmt.Errorf("%w: logquant: it ends before values %d to %d", codecs.ErrCorrupt, from, from+len(y)-1)
		}
		top := int(int16(binary.LittleEndian.Uint16(src)))
		src = src[topLen:]
		if top == zeros {
			clear(y)
			continue
		}
		if top < minLog || top > maxLog {
			return fmt.Errorf("%w: logquant: the largest of values %d to %d is 2^%d", codecs.ErrCorrupt, from, from+len(y)-1, top)
		}
		if len(src) < c.codesLen(len(y)) {
			return fmt.Errorf("%w: logquant: it ends in values %d to %d", codecs.ErrCorrupt, from, from+len(y)-1)
		}
		c.fill(&table, top)
		r := bitio.NewReader(src)
		for i := range y {
			y[i] = table[r.Read(uint(c.bits))]
		}
		used, ok := r.Close()
		if !ok {
			return fmt.Errorf("%w: logquant: its codes do not end with value %d", codecs.ErrCorrupt, from+len(y)-1)
		}
		src = src[used:]
	}
	if len(src) > 0 {
		return fmt.Errorf("%w: logquant: %d bytes follow its %d values", codecs.ErrCorrupt, len(src), c.n)
	}
	return nil
}

// fill sets the value of each code.
func (c coder) fill(table *[1 << maxBits]float32, top int) {
	table[0], table[1<<(c.bits-1)] = 0, 0
	for code := 1; code <= c.levels(); code++ {
		y := float32(math.Ldexp(1, top+1-code)) // 0 below the least float32, where no encoder needs a code
		table[code], table[code|1<<(c.bits-1)] = y, -y
	}
}

func (c coder) check(n int) {
	if n != c.n {
		panic(fmt.Sprintf("logquant: %d values for a coder of %d", n, c.n))
	}
}
