package site

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
)

// A tensorHistory remembers how the tensors that send most have travelled in the last hour.
type tensorHistory struct {
	mu    sync.Mutex
	last  time.Time
	known map[uint64]*travelled
}

const (
	tensorStep  = 10  // seconds
	tensorSlots = 360 // of each tensor
	tensorTop   = 240 // tensors that are sampled: the ones that have sent most
	tensorMax   = 480 // tensors that are remembered
)

// tensorHistoryMemory is the most bytes that a tensorHistory takes. Slices grow to more than they hold, and each of
// tensorTop new tensors may come before the oldest go.
const tensorHistoryMemory = (tensorMax + tensorTop) * (512 + tensorSlots*3/2*slotBytes)

// slotBytes is the bytes of one slot: the time and four figures.
const slotBytes = 8 + 4*4

// A travelled has the slots of one tensor. It takes 13 KB once it is full.
type travelled struct {
	raw, wire int64 // counters at the last sample
	seen      time.Time
	h         admin.TensorHistory
}

// sample adds a slot if one is due.
func (t *tensorHistory) sample(now time.Time, list func(limit int) []proxy.TensorInfo) {
	if now.Sub(t.last) < tensorStep*time.Second {
		return
	}
	t.last = now
	tensors := list(tensorTop)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[uint64]*travelled{}
	}
	for _, x := range tensors {
		t.add(now, &x)
	}
	if len(t.known) > tensorMax {
		ids := slices.SortedFunc(maps.Keys(t.known), func(a, b uint64) int { return cmp.Compare(t.known[a].seen.UnixNano(), t.known[b].seen.UnixNano()) })
		for _, id := range ids[:len(ids)-tensorMax] {
			delete(t.known, id)
		}
	}
}

// add adds a slot to a tensor's history. mu is held.
func (t *tensorHistory) add(now time.Time, x *proxy.TensorInfo) {
	of := t.known[x.ID]
	if of == nil {
		of = &travelled{h: admin.TensorHistory{Step: tensorStep}}
		t.known[x.ID] = of
	}
	h := &of.h
	if n := len(h.Times); n >= tensorSlots {
		drop := n - tensorSlots + 1
		h.Times = slices.Delete(h.Times, 0, drop)
		for _, c := range []*[]float32{&h.Raw, &h.Wire, &h.Error, &h.Residual} {
			*c = slices.Delete(*c, 0, drop)
		}
	}
	h.Times = append(h.Times, now.Unix())
	h.Raw, h.Wire = append(h.Raw, float32(x.RawBytes-of.raw)), append(h.Wire, float32(x.WireBytes-of.wire))
	h.Error, h.Residual = append(h.Error, float32(x.Error)), append(h.Residual, float32(x.Residual))
	of.raw, of.wire, of.seen = x.RawBytes, x.WireBytes, now
}

// of returns the history of a tensor; nil: there is none.
func (t *tensorHistory) of(id uint64) *admin.TensorHistory {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.known[id]
	if x == nil {
		return nil
	}
	h := x.h
	h.Times = slices.Clone(h.Times)
	h.Raw, h.Wire, h.Error, h.Residual = slices.Clone(h.Raw), slices.Clone(h.Wire), slices.Clone(h.Error), slices.Clone(h.Residual)
	return &h
}
