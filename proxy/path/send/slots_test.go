package send

import (
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// Messages of ever other lengths take slots of a bounded number.
func TestSlotsOfVariableLengthAreBounded(t *testing.T) {
	var s slots
	c, err := pathtest.Codec("3lc(s=1.75)")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint32]bool{}
	for n := range 4 * maxVariable {
		q := slotRequest{decl: frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: n + 1}, codec: c, feedback: true, variable: true}
		for range 3 {
			slot, err := s.get(q)
			if err != nil {
				t.Fatal(err)
			}
			if slot.declared {
				continue
			}
			slot.declared = true
			ids[slot.id] = true
		}
	}
	if s.variable.Len() != maxVariable || len(ids) != maxVariable || s.common.Len() != 0 {
		t.Errorf("%d slots under %d numbers, and %d of common shapes", s.variable.Len(), len(ids), s.common.Len())
	}
}

// Of more slots than there may be, the one that was used least recently makes room, and its number is used again.
func TestLeastRecentSlotMakesRoom(t *testing.T) {
	var s slots
	c, err := pathtest.Codec("3lc(s=1.75)")
	if err != nil {
		t.Fatal(err)
	}
	get := func(n int) (id uint32, fresh bool) {
		t.Helper()
		slot, err := s.get(slotRequest{decl: frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: n}, codec: c, variable: true})
		if err != nil {
			t.Fatal(err)
		}
		fresh, slot.declared = !slot.declared, true
		return slot.id, fresh
	}
	for n := range maxVariable {
		get(1 + n)
	}
	first, fresh := get(1)
	second, _ := get(maxVariable + 1)
	if again, still := get(1); fresh || still || again != first || second != 1 {
		t.Errorf("slot %d of the shape that was used again is %d, and a new shape has taken %d", first, again, second)
	}
	if id, fresh := get(2); !fresh || id != 2 {
		t.Errorf("the shape that was used least recently has slot %d still", id)
	}
}

// The slot of a tensor that was forgotten begins anew, under the same number.
func TestForgottenTensorHasANewEncoder(t *testing.T) {
	var s slots
	c, err := pathtest.Codec("3lc(s=1.75)")
	if err != nil {
		t.Fatal(err)
	}
	q := slotRequest{decl: frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: 8, Key: 1}, codec: c, feedback: true, lock: new(sync.Mutex), residual: make([]float32, 8)}
	first, err := s.get(q)
	if err != nil {
		t.Fatal(err)
	}
	first.declared = true
	if again, _ := s.get(q); again != first {
		t.Error("a tensor has another slot though it was not forgotten")
	}
	q.lock, q.residual = new(sync.Mutex), make([]float32, 8)
	anew, err := s.get(q)
	if err != nil {
		t.Fatal(err)
	}
	if anew == first || anew.id != first.id || anew.declared || &anew.residual[0] != &q.residual[0] {
		t.Errorf("the tensor that was forgotten has slot %d, declared: %v", anew.id, anew.declared)
	}
}
