package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

const one = "one" // a codec

// blocks notes n blocks of 1 MB with the given ratio, coded at bytes per second.
func blocks(h *History, n int, ratio, speed float64) {
	for range n {
		h.Saw(one, 1e6, int(1e6/ratio), time.Duration(1e6/speed*float64(time.Second)))
	}
}

// gained counts the values in a row of which the history says that they should be coded.
func gained(h *History, m Measured, values int) (n int) {
	for range values {
		if h.Gains(one, m) {
			n++
		}
	}
	return n
}

func TestATensorThatShrinksIsCoded(t *testing.T) {
	var h History
	blocks(&h, 10, 1.5, 1e9)
	if n := gained(&h, Measured{Rate: 100e6, Cores: 1}, 100); n != 100 {
		t.Errorf("%d of 100 values are coded", n)
	}
}

// A tensor that does not shrink is tried again ever more rarely, but never given up: gradients change while a job
// trains.
func TestATensorThatDoesNotShrinkIsTriedNowAndThen(t *testing.T) {
	var h History
	blocks(&h, 10, 1, 1e9)
	if n := gained(&h, Measured{Cores: 1}, 1000); n < 5 || n > 20 {
		t.Errorf("%d of 1000 values are coded", n)
	}
	blocks(&h, 50, 1.5, 1e9)
	if n := gained(&h, Measured{Cores: 1}, 100); n != 100 {
		t.Errorf("after it began to shrink %d of 100 values are coded", n)
	}
}

// A path that is faster than the codec gets the bytes as they are, unless several cores code.
func TestFastPathIsNotSlowedDown(t *testing.T) {
	var h History
	blocks(&h, 10, 1.5, 1e9)
	if n := gained(&h, Measured{Rate: 2e9, Cores: 1}, 1000); n > 20 {
		t.Errorf("%d of 1000 values are coded though the path is faster", n)
	}
	if n := gained(&h, Measured{Rate: 2e9, Cores: 4}, 100); n != 100 {
		t.Errorf("%d of 100 values are coded by four cores", n)
	}
}

// One block that the scheduler held up says nothing of the codec.
func TestAStallIsNotTheCodecs(t *testing.T) {
	var h History
	blocks(&h, 1, 1.5, 1e9)
	blocks(&h, 20, 1.5, 10e6)
	if n := gained(&h, Measured{Rate: 100e6, Cores: 1}, 100); n != 100 {
		t.Errorf("%d of 100 values are coded", n)
	}
}

// A codec that does not pay says nothing of another, and a tensor remembers a few.
func TestEachCodecHasItsOwnGain(t *testing.T) {
	var h History
	blocks(&h, 10, 1, 1e9)
	h.Saw("two", 1000, 500, time.Microsecond)
	if n := gained(&h, Measured{Cores: 1}, 1000); n > 20 {
		t.Errorf("%d of 1000 values are coded, though another codec gains", n)
	}
	for range 100 {
		if !h.Gains("two", Measured{Cores: 1}) || !h.Gains("three", Measured{Cores: 1}) {
			t.Fatal("a codec that gains, or was never tried, is not used")
		}
	}
	if h.Takes("two", 1e6) != time.Millisecond || h.Takes("three", 1) < time.Minute {
		t.Errorf("a megabyte takes %v", h.Takes("two", 1e6))
	}
	for i := range 100 {
		h.Saw(fmt.Sprint(i), 1000, 500, time.Microsecond)
	}
	if len(h.gains) > maxGains {
		t.Errorf("%d codecs are remembered", len(h.gains))
	}
}

// The results that the policy is told decide its next choice: it says NoGain of a tensor that a codec does not shrink,
// until the tensor shrinks again.
func TestChoiceRestsOnWhatWasSeen(t *testing.T) {
	p, err := New([]Rule{{Codec: "lossless", Roles: []tensor.Role{tensor.State}}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Tensor{Key: 1, Role: tensor.State, DType: tensor.Float32, Size: 1 << 20}
	var h History
	m := Measured{Cores: 1, History: &h}
	for range 10 {
		c := p.Choose(Flow{}, x, m)
		if c.NoGain {
			t.Fatal("no gain, of a codec that was never seen")
		}
	}
	for range 10 {
		p.Saw(Flow{}, x, &h, p.Choose(Flow{}, x, m).Codec.String(), 1000, 1000, time.Microsecond)
	}
	skipped := 0
	for range 100 {
		if p.Choose(Flow{}, x, m).NoGain {
			skipped++
		}
	}
	if skipped < 80 {
		t.Errorf("%d of 100 values are left alone, though coding gains nothing", skipped)
	}
	for range 50 {
		p.Saw(Flow{}, x, &h, "lossless", 1000, 500, time.Microsecond)
	}
	if p.Choose(Flow{}, x, m).NoGain {
		t.Error("no gain, though it shrinks by half")
	}
}

// A tensor that will lose something if it proves to be a gradient is watched before, whatever it gains meanwhile.
func TestLearningTensorsAreWatched(t *testing.T) {
	p, err := New([]Rule{{Codec: "3lc", Roles: []tensor.Role{tensor.Gradient}}}, fakes)
	if err != nil {
		t.Fatal(err)
	}
	var h History
	h.Saw("lossless", 1000, 1000, time.Microsecond)
	m := Measured{Cores: 1, History: &h}
	learning := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 1 << 20, Why: tensor.Learning}
	for range 10 {
		if c := p.Choose(Flow{}, learning, m); !c.Watch || c.NoGain || c.Codec.String() != "lossless" {
			t.Fatalf("%+v", c)
		}
	}
	known := learning
	known.Why = tensor.OK
	if p.Choose(Flow{}, known, m).Watch {
		t.Error("a tensor that will not lose anything is watched")
	}
}
