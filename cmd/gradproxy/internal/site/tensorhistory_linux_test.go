package site

import (
	"testing"
	"time"
	"unsafe"

	"github.com/gradproxy/gradproxy/proxy"
)

// However long a job runs and however often its tensors are replaced by others, their history takes no more memory than
// the sum of budgets counts for it, and not much less once it is full.
func TestTensorHistoryIsInTheBudget(t *testing.T) {
	var h tensorHistory
	now := time.Unix(1_000_000_000, 0)
	largest := 0
	for round := range 3 {
		for range tensorSlots + 2 {
			now = now.Add(tensorStep * time.Second)
			h.sample(now, func(limit int) (list []proxy.TensorInfo) {
				for i := range limit {
					list = append(list, proxy.TensorInfo{ID: uint64(round*limit + i + 1), RawBytes: now.Unix()})
				}
				return list
			})
		}
		largest = max(largest, held(&h))
	}
	if len(h.known) != tensorMax || largest > tensorHistoryMemory || largest < tensorHistoryMemory/2 {
		t.Errorf("%d tensors take %d bytes, of which %d are counted", len(h.known), largest, tensorHistoryMemory)
	}
	for _, p := range BudgetOf(loadBudget(t, "")).parts {
		if p.name == "history" && p.bytes >= tensorHistoryMemory {
			return
		}
	}
	t.Error("the sum of budgets does not count the history")
}

// held returns the bytes of all slots.
func held(h *tensorHistory) (n int) {
	for _, x := range h.known {
		n += int(unsafe.Sizeof(*x)) + 8*cap(x.h.Times) + 4*(cap(x.h.Raw)+cap(x.h.Wire)+cap(x.h.Error)+cap(x.h.Residual))
	}
	return n
}
