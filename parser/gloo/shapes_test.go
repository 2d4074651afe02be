package gloo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// shapesOf lists sizes and contiguous strides as DDP broadcasts them.
func shapesOf(shapes [][]int64) (numbers []int64, counts []uint64) {
	for _, sizes := range shapes {
		numbers = append(numbers, sizes...)
		strides := make([]int64, len(sizes))
		n := int64(1)
		for i := len(sizes) - 1; i >= 0; i-- {
			strides[i] = n
			n *= sizes[i]
		}
		numbers = append(numbers, strides...)
		counts = append(counts, uint64(n))
	}
	return numbers, counts
}

// A multi-layer perceptron's broadcast, as captured.
func TestCutsACapturedBroadcast(t *testing.T) {
	numbers := []int64{200, 64, 64, 1, 200, 1, 100, 200, 200, 1, 100, 1, 10, 100, 100, 1, 10, 1}
	got, ok := cutShapes(numbers, 6)
	if want := []uint64{12800, 200, 20000, 100, 1000, 10}; !ok || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, ok, want)
	}
	for _, params := range []int{0, 3, 5, 7, -1} {
		if got, ok := cutShapes(numbers, params); ok {
			t.Errorf("as %d parameters: %v", params, got)
		}
	}
}

func TestCutsModels(t *testing.T) {
	for name, shapes := range map[string][][]int64{
		"a position embedding with leading ones": {{1, 1, 768}, {768}, {1, 197, 768}, {2304, 768}, {2304}},
		"a regression head":                      {{64, 10}, {64}, {1, 64}, {1}},
		"convolutions":                           {{64, 3, 7, 7}, {64}, {64}, {64, 64, 3, 3}, {64}, {64}, {10, 64}, {10}},
		"convolutions of one channel":            {{8, 1, 3, 3}, {8}, {16, 8, 1, 1}, {16}, {10, 16}, {10}},
		"three dimensions":                       {{16, 1, 3, 3, 3}, {16}},
		"one parameter":                          {{4, 3, 2}},
	} {
		numbers, want := shapesOf(shapes)
		if got, ok := cutShapes(numbers, len(shapes)); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, want)
		}
	}
}

func TestCutsChannelsLast(t *testing.T) {
	numbers := []int64{64, 3, 7, 7, 147, 1, 21, 3, 64, 1}
	if got, ok := cutShapes(numbers, 2); !ok || !slices.Equal(got, []uint64{9408, 64}) {
		t.Errorf("%v, %v", got, ok)
	}
}

// Numbers that are no shapes, or are many at once, have no answer, and none takes long.
func TestGivesUp(t *testing.T) {
	ones := make([]int64, 4000)
	for i := range ones {
		ones[i] = 1
	}
	counting := make([]int64, 4000)
	for i := range counting {
		counting[i] = int64(i)
	}
	for name, numbers := range map[string][]int64{"ones": ones, "counting": counting, "negative": {-1, 1}, "none": nil, "huge": {1 << 40, 1 << 40, 1 << 40, 1}} {
		for _, params := range []int{1, 2, 300, 700} {
			if got, ok := cutShapes(numbers, params); ok && name != "ones" {
				t.Errorf("%s as %d parameters: %v", name, params, got)
			}
		}
	}
}

func TestCutsRandomModels(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var shapes [][]int64
		for range 1 + rnd.IntN(60) {
			sizes := make([]int64, 1+rnd.IntN(4))
			for i := range sizes {
				sizes[i] = 2 + rnd.Int64N(500)
			}
			shapes = append(shapes, sizes)
		}
		numbers, want := shapesOf(shapes)
		if got, ok := cutShapes(numbers, len(shapes)); !ok || !slices.Equal(got, want) {
			t.Fatalf("%v: %v, %v", shapes, got, ok)
		}
	}
}
