package reference_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/tensor"
)

func TestCopy(t *testing.T) {
	c := reference.NewCopy(4, 1)
	check := func(version uint64, memory int, value string) {
		t.Helper()
		if c.Version() != version || c.Memory() != memory || string(c.AppendTo([]byte("+"))) != "+"+value {
			t.Errorf("version %d, %d bytes, %q; want %d, %d, %q", c.Version(), c.Memory(), c.AppendTo(nil), version, memory, value)
		}
	}
	check(0, 0, "")
	b := []byte("abcd")
	c.Set(b)
	b[0] = 'x'
	check(1, 4, "abcd")
	c.Set([]byte("efgh"))
	check(2, 8, "efgh")
	c.Set([]byte("ijkl"))
	check(3, 8, "ijkl")
	c.Drop()
	check(0, 0, "")
	c.Set([]byte("mnop"))
	check(1, 4, "mnop")
}

// Keep takes effect from the next value on: more earlier values are kept, and fewer when it is lowered again.
func TestCopyKeepsMore(t *testing.T) {
	c := reference.NewCopy(4, 0)
	for i, step := range []struct{ keep, memory int }{{-1, 4}, {-1, 4}, {2, 8}, {-1, 12}, {-1, 12}, {1, 8}, {0, 4}} {
		if step.keep >= 0 {
			c.Keep(step.keep)
		}
		c.Set([]byte{0, 1, 2, byte(i)})
		if c.Version() != uint64(i+1) || c.Memory() != step.memory || c.AppendTo(nil)[3] != byte(i) {
			t.Errorf("value %d: version %d, %d bytes, want %d; the latest is %v", i, c.Version(), c.Memory(), step.memory, c.AppendTo(nil))
		}
	}
	from, to := reference.NewCopy(4096, 0), reference.NewCopy(4096, 0)
	block := make([]byte, 4096)
	for i := range block {
		block[i] = byte(i * i >> 4)
	}
	from.Set(block)
	to.Set(block)
	enc, err := reference.NewEncoder(mustNew(t, "lossless"), tensor.Float32, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := reference.NewDecoder(mustNew(t, "lossless"), tensor.Float32, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	for ahead := range 4 { // values that the decoder's end has had, and the encoder's has not
		encoded, err := enc.Append(nil, block)
		if err != nil {
			t.Fatal(err)
		}
		if ahead == 0 {
			to.Keep(2)
		}
		if err := dec.Decode(make([]byte, 4096), encoded); errors.Is(err, reference.ErrReference) != (ahead == 3) {
			t.Errorf("%d values ahead with 2 kept: %v", ahead, err)
		}
		to.Set(block)
	}
}

func TestCopyOfNothing(t *testing.T) {
	c := reference.NewCopy(0, 0)
	c.Set(nil)
	if c.Version() != 1 || !bytes.Equal(c.AppendTo(nil), nil) {
		t.Errorf("an empty value is not held")
	}
}

func TestCopyOfAnotherSize(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a value of another size was taken")
		}
	}()
	reference.NewCopy(4, 0).Set([]byte("abc"))
}

// Setting a copy again takes no new memory.
func TestCopyNoAllocation(t *testing.T) {
	c, b := reference.NewCopy(4096, 2), make([]byte, 4096)
	for range 3 {
		c.Set(b)
	}
	if a := testing.AllocsPerRun(20, func() { c.Set(b) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// The relative error is that of the first elements, of any float type.
func TestRelativeError(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		const n = 1000
		held, value := make([]float32, n), make([]float32, n)
		for i := range held {
			held[i], value[i] = 3, 4
		}
		bytes := func(v []float32) []byte {
			b := make([]byte, len(v)*d.Size())
			tensor.FromFloat32(b, v, d)
			return b
		}
		c := reference.NewCopy(n*d.Size(), 0)
		if e := c.RelativeError(d, bytes(value)); !math.IsInf(e, 1) {
			t.Errorf("%v: %v before the first value, want +Inf", d, e)
		}
		c.Set(bytes(held))
		for _, x := range []struct {
			value []float32
			want  float64
		}{{value, 0.25}, {value[:1], 0.25}, {held, 0}, {make([]float32, n), math.Inf(1)}, {nil, 0}} {
			if e := c.RelativeError(d, bytes(x.value)); e != x.want {
				t.Errorf("%v, %d elements: %v, want %v", d, len(x.value), e, x.want)
			}
		}
	}
}
