package policy

import (
	"testing"
	"time"
)

// blocks notes n blocks of 1 MB with the given ratio, coded at bytes per second.
func blocks(g *Gain, n int, ratio, speed float64) {
	for range n {
		g.Saw(1e6, int(1e6/ratio), time.Duration(1e6/speed*float64(time.Second)))
	}
}

// paid counts of how many values in a row the gain says that they should be coded.
func paid(g *Gain, m Measured, values int) (n int) {
	for range values {
		if g.Pays(m, 1) {
			n++
		}
	}
	return n
}

func TestWhatShrinksIsCoded(t *testing.T) {
	var g Gain
	blocks(&g, 10, 1.5, 1e9)
	if n := paid(&g, Measured{Rate: 100e6}, 100); n != 100 {
		t.Errorf("%d of 100 values are coded", n)
	}
}

// What does not shrink is tried again ever more rarely, but never given up: gradients change while a job trains.
func TestWhatDoesNotShrinkIsTriedNowAndThen(t *testing.T) {
	var g Gain
	blocks(&g, 10, 1, 1e9)
	if n := paid(&g, Measured{}, 1000); n < 5 || n > 20 {
		t.Errorf("%d of 1000 values are coded", n)
	}
	blocks(&g, 50, 1.5, 1e9)
	if n := paid(&g, Measured{}, 100); n != 100 {
		t.Errorf("after it began to shrink %d of 100 values are coded", n)
	}
}

// A path that is faster than the codec gets the bytes as they are.
func TestFastPathIsNotSlowedDown(t *testing.T) {
	var g Gain
	blocks(&g, 10, 1.5, 1e9)
	if n := paid(&g, Measured{Rate: 2e9}, 1000); n > 20 {
		t.Errorf("%d of 1000 values are coded though the path is faster", n)
	}
}

// One block that the scheduler held up says nothing of the codec.
func TestAStallIsNotTheCodecs(t *testing.T) {
	var g Gain
	blocks(&g, 1, 1.5, 1e9)
	blocks(&g, 20, 1.5, 10e6)
	if n := paid(&g, Measured{Rate: 100e6}, 100); n != 100 {
		t.Errorf("%d of 100 values are coded", n)
	}
}
