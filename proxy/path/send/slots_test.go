package send

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
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
			s.group++
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

// Rows of ever other numbers, and their indexes, take slots of a bounded number, whether they are one block or more.
func TestRowsOfManyLengthsTakeFewSlots(t *testing.T) {
	require.OneGoroutine(t)
	const width, largest = 16, 200
	for name, codec := range map[string]string{"in one block": "int8", "in several": "logquant(block=2048)"} {
		s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: codec})
		r := rand.New(rand.NewPCG(7, 8))
		for n := largest; n > largest-2*maxVariable; n-- {
			ids := residual.IDs{Width: 8}
			for i := range n {
				ids.Bytes = binary.LittleEndian.AppendUint64(ids.Bytes, uint64(i))
			}
			s.sendRows(t, ids, scaled(r, width*n, 1))
		}
		if all, few := &s.encode.slots, maxVariable/8; all.variable.Len() != maxVariable || all.common.Len() > few {
			t.Errorf("rows %s: %d slots, and %d of common shapes", name, all.variable.Len(), all.common.Len())
		}
		s.choose.rows.drop()
		pathtest.Whole(t, s.env)
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
		s.group++
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

// A group's slots keep their numbers, however many they are, and make room once the group has left.
func TestSlotsOfAGroupKeepTheirNumbers(t *testing.T) {
	var s slots
	c, err := pathtest.Codec("3lc(s=1.75)")
	if err != nil {
		t.Fatal(err)
	}
	get := func(n int) uint32 {
		t.Helper()
		slot, err := s.get(slotRequest{decl: frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: n}, codec: c, variable: true})
		if err != nil {
			t.Fatal(err)
		}
		return slot.id
	}
	const shapes = 3 * maxVariable
	ids := map[uint32]bool{}
	for n := range shapes {
		ids[get(1+n)] = true
	}
	if len(ids) != shapes || get(1) != 0 {
		t.Errorf("%d slots of one group have %d numbers", shapes, len(ids))
	}
	s.group++
	if id := get(shapes + 1); id >= shapes || s.variable.Len() != maxVariable {
		t.Errorf("the next group's slot has number %d, and there are %d slots", id, s.variable.Len())
	}
	for n := range shapes {
		s.group++
		ids[get(2*shapes+n)] = true
	}
	if len(ids) != shapes || s.variable.Len() != maxVariable {
		t.Errorf("further groups have taken %d numbers, and there are %d slots", len(ids), s.variable.Len())
	}
}

// A block that waits in its group keeps its slot, though blocks before it travel exactly and take other slots for that.
func TestWaitingBlockKeepsItsSlot(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "logquant(block=2048)"})
	r := rand.New(rand.NewPCG(5, 6))
	var sent []byte
	send := func(x tensor.Tensor, b []byte) {
		t.Helper()
		x.Hold = x.Size - x.Off
		if err := s.cut.tensor(x, append(make([]byte, frame.MaxHeader), b...), nil); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b...)
	}
	index := func(key uint64, rows int) {
		var ids []byte
		for i := range rows {
			ids = binary.LittleEndian.AppendUint64(ids, uint64(i))
		}
		send(tensor.Tensor{Key: key, Keys: key, Role: tensor.Exact, DType: tensor.Uint64, Size: len(ids)}, ids)
	}
	rows := func(key uint64, rows int) (from, to int) { // one block of 128 rows, and one of the rest
		index(key, rows)
		from = len(sent)
		send(tensor.Tensor{Key: 1000 + key, Keys: key, Role: tensor.Gradient, DType: tensor.Float32, Size: 64 * rows}, scaled(r, 16*rows, 1))
		return from, len(sent)
	}
	const known, strangers, others = 1, 10, 54
	var lossy [2][2]int
	for range 2 {
		lossy[0][0], lossy[0][1] = rows(known, 128+50)
	}
	held := tensor.Tensor{Key: 9999, Role: tensor.Exact, DType: tensor.Float32, Size: 4096}
	send(held, make([]byte, 2048))
	for i := range strangers { // first values, which travel exactly
		rows(uint64(2+i), 128+60+i)
	}
	lossy[1][0], lossy[1][1] = rows(known, 128+50)
	for i := range others {
		index(uint64(100+i), 300+i)
	}
	held.Off = 2048
	send(held, make([]byte, 2048))
	got := s.delivered(t)
	if len(got) != len(sent) {
		t.Fatalf("%d bytes arrive of %d", len(got), len(sent))
	}
	for _, x := range lossy {
		if bytes.Equal(got[x[0]:x[1]], sent[x[0]:x[1]]) {
			t.Error("rows that may lose something travel exactly")
		}
		copy(got[x[0]:x[1]], sent[x[0]:x[1]])
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes arrive")
	}
	s.choose.rows.drop()
	pathtest.Whole(t, s.env)
}
