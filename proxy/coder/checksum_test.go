package coder

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

var floats = []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64}

// normal returns n normal values of a type.
func normal(rnd *rand.Rand, d tensor.DType, n int) []byte {
	x, b := make([]float32, n), make([]byte, n*d.Size())
	for i := range x {
		x[i] = float32(rnd.NormFloat64()) * 1e-2
	}
	tensor.RoundTo(b, x, d)
	return b
}

// Each single bit of the CRC-32 can be changed, and any number of them, by the lowest bits of the last 32 elements
// alone; and what a receiver flips is what the sender has.
func TestKeepSum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, d := range floats {
		for _, n := range []int{SumElements, SumElements + 1, 1000} {
			for bit := range 40 {
				sent := normal(rnd, d, n)
				sum := crc32.ChecksumIEEE(sent) ^ 1<<(bit%32)
				if bit >= 32 {
					sum = rnd.Uint32()
				}
				delivered, residual := bytes.Clone(sent), make([]float32, n)
				flips := KeepSum(d, delivered, sum, residual)
				if got := crc32.ChecksumIEEE(delivered); got != sum || flips == 0 {
					t.Fatalf("%v, %d elements: CRC-32 %08x, want %08x", d, n, got, sum)
				}
				changed := 0
				for i := range sent {
					x := sent[i] ^ delivered[i]
					changed += bits.OnesCount8(x)
					if x > 1 || x == 1 && (i%d.Size() != 0 || i/d.Size() < n-SumElements) {
						t.Fatalf("%v: byte %d of %d changes by %#x", d, i, len(sent), x)
					}
				}
				if changed != bits.OnesCount32(flips) {
					t.Fatalf("%v: %d bits change, %#x says another number", d, changed, flips)
				}
				before, after := make([]float32, n), make([]float32, n)
				tensor.ToFloat32(before, sent, d)
				tensor.ToFloat32(after, delivered, d)
				for i := range before {
					if residual[i] != before[i]-after[i] {
						t.Fatalf("%v: residual %d is %v, want %v", d, i, residual[i], before[i]-after[i])
					}
				}
				if Flip(d, sent, flips); !bytes.Equal(sent, delivered) {
					t.Fatalf("%v: the receiver has other bytes", d)
				}
			}
		}
	}
	if b := normal(rnd, tensor.Float32, 99); KeepSum(tensor.Float32, b, crc32.ChecksumIEEE(b), nil) != 0 {
		t.Error("a right CRC-32 takes flips")
	}
}

// Blocks that are short, hold no floats, or end in numbers that are not finite are not summable.
func TestSummable(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, d := range floats {
		b := normal(rnd, d, 40)
		if !Summable(d, b) || Summable(d, b[:31*d.Size()]) || Summable(tensor.Int32, make([]byte, 400)) {
			t.Errorf("%v: a block of 40 normal values is not summable, or one of 31 is, or of integers", d)
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for at, want := range map[int]bool{0: true, 7: true, 8: false, 39: false} {
				x := bytes.Clone(b)
				tensor.FromFloat32(x[at*d.Size():][:d.Size()], []float32{float32(v)}, d)
				if Summable(d, x) != want {
					t.Errorf("%v: %v at %d of 40: %v", d, v, at, !want)
				}
			}
		}
	}
}

// By every lossy codec here, with feedback and without, delivered blocks have the CRC-32 of the sent ones, and values
// and residual still add up.
func TestSummedKeepsEveryChecksum(t *testing.T) {
	const n, steps = 4096, 12
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, text := range []string{"3lc(s=1.75)", "int8", "int4", "onebit", "topk(k=0.01)", "fp16", "qsgd"} {
		for _, d := range floats {
			c := codec(t, text)
			s := &Summed{DType: d, Room: make([]byte, n*d.Size())}
			var err error
			if c.Traits().Unbiased {
				s.Encoder, err = c.NewEncoder(d, n)
			} else {
				s.Residual = make([]float32, n)
				s.Encoder, err = feedback.NewEncoder(c, d, s.Residual)
			}
			if err != nil {
				t.Fatal(err)
			}
			dec, _ := c.NewDecoder(d, n)
			s.Decoder, _ = c.NewDecoder(d, n)
			sent, got := make([]float64, n), make([]float64, n)
			coded := 0
			for range steps {
				b := normal(rnd, d, n)
				delivered := bytes.Clone(b)
				out, err := s.Append([]byte("head"), b)
				switch {
				case errors.Is(err, codecs.ErrUnsuited):
				case err != nil:
					t.Fatal(err)
				default:
					coded++
					flips, encoding, err := TakeFlips(d, len(b), out[4:])
					if err == nil {
						err = dec.Decode(delivered, encoding)
					}
					if err != nil {
						t.Fatalf("%s of %v: %v", text, d, err)
					}
					Flip(d, delivered, flips)
				}
				if crc32.ChecksumIEEE(b) != crc32.ChecksumIEEE(delivered) {
					t.Fatalf("%s of %v: another CRC-32 is delivered", text, d)
				}
				add(sent, b, d)
				add(got, delivered, d)
			}
			if coded == 0 && d == tensor.Float32 {
				t.Errorf("%s codes no block", text)
			}
			for i := range sent {
				if s.Residual != nil && math.Abs(sent[i]-got[i]-float64(s.Residual[i])) > 1e-3 {
					t.Fatalf("%s of %v: element %d: %v sent, %v delivered, and %v is left", text, d, i, sent[i], got[i], s.Residual[i])
				}
			}
		}
	}
}

func add(sum []float64, b []byte, d tensor.DType) {
	x := make([]float32, len(sum))
	tensor.ToFloat32(x, b, d)
	for i, v := range x {
		sum[i] += float64(v)
	}
}

// An encoder whose decoder fails, panics, or delivers no finite number, is broken: it must not be taken for one that is
// unsuited. Its block travels as it is, so no residual of it is left.
func TestSummedOfABrokenCodec(t *testing.T) {
	b := normal(rand.New(rand.NewPCG(9, 9)), tensor.Float32, 64)
	for name, dec := range map[string]decoded{"fails": {err: codecs.ErrCorrupt}, "infinities": {fill: 0x7f800000}, "panics": {panics: true}, "works": {}} {
		residual := make([]float32, 64)
		s := &Summed{Encoder: leaves{residual}, Decoder: dec, DType: tensor.Float32, Residual: residual, Room: make([]byte, len(b))}
		var slot Slot
		body, err := slot.Encode([]byte("head"), 4, s, b)
		left := slices.ContainsFunc(residual, func(v float32) bool { return v != 0 })
		if works := name == "works"; (err == nil) != works || errors.Is(err, codecs.ErrUnsuited) || left != works || !works && string(body) != "head"+string(rune(frame.FormRaw))+string(b) {
			t.Errorf("%s: %d bytes, %v, a residual is left: %v", name, len(body), err, left)
		}
	}
}

// leaves copies blocks and leaves a residual of ones.
type leaves struct{ residual []float32 }

func (l leaves) Append(dst, src []byte) ([]byte, error) {
	for i := range l.residual {
		l.residual[i] = 1
	}
	return append(dst, src...), nil
}

type decoded struct {
	err    error
	fill   uint32
	panics bool
}

func (d decoded) Decode(dst, _ []byte) error {
	if d.panics {
		panic("broken")
	}
	for i := range dst {
		dst[i] = byte(d.fill >> (8 * (i % 4)))
	}
	return d.err
}

// Bodies that no sender makes are errors.
func TestBrokenFlips(t *testing.T) {
	for _, c := range []struct {
		d    tensor.DType
		size int
		body string
	}{{tensor.Int32, 400, "flipsrest"}, {tensor.Float32, 124, "flipsrest"}, {tensor.Float32, 400, "abc"}, {tensor.NoDType, 400, "flips"}} {
		if _, _, err := TakeFlips(c.d, c.size, []byte(c.body)); !errors.Is(err, frame.ErrFrame) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
