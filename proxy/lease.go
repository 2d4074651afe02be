package proxy

import "github.com/gradproxy/gradproxy/proxy/frame"

import mem "github.com/gradproxy/gradproxy/proxy/memory"

// What receivers hold: a frame's body, and room for the elements that come of it, are paid for before the body is read.

// A lease is the memory of an item of a receiver's pipe.
type lease struct {
	paid   int // bytes of the budget
	spare  int // bytes of the connection's spare; only one item has any
	unused int // bytes that are paid for, and wait for the blocks of a Gather
}

// blockCost is the bytes of memory of a block beside its elements and encoding.
const blockCost = 256

// keeps takes memory for a body that is to be read.
func (r *receiver) keeps(k frame.Kind, id uint32, n int) error {
	need := mem.Footprint(n)
	if k == frame.Block {
		slot, err := r.slots.get(id)
		if err != nil {
			return err
		}
		need += mem.Footprint(slot.size()) + blockCost
	}
	if need <= r.item.unused {
		r.item.unused -= need
		return nil
	}
	need -= r.item.unused
	r.item.unused = 0
	return r.hold(need)
}

const (
	// recvSlotCost is the bytes of memory that a slot of a receiver takes.
	recvSlotCost = 320
	// slotsAtOnce is how many slots are paid for at a time, after as many that are not.
	slotsAtOnce = 32
)

// declare sets a slot from a Declare frame.
func (r *receiver) declare(f frame.Frame) error {
	if r.slots.slots[f.Slot] == nil && len(r.slots.slots) >= r.paidSlots+slotsAtOnce {
		const n = slotsAtOnce * recvSlotCost
		if b := r.lender.Budget; !b.Take(&r.kept, n) {
			if err := b.Await(&r.kept, n, r.shared.memoryWait, r.gone); err != nil {
				return err
			}
		}
		r.paidSlots += slotsAtOnce
	}
	return r.slots.declare(f.Slot, f.Body)
}

// keepGathered takes memory for the blocks of a Gather together, so that none waits for memory that another has meanwhile.
func (r *receiver) keepGathered(sizes []int) error {
	need := 0
	for _, n := range sizes {
		need += mem.Footprint(n) + mem.Footprint(1+n) + blockCost
	}
	if err := r.hold(need); err != nil {
		return err
	}
	r.item.unused = need
	return nil
}

// hold takes n bytes for what is being read. Where there are none, everything before is delivered first; then spare has
// room, or it is others' turn.
func (r *receiver) hold(n int) error {
	if !r.lender.Take(n) {
		if err := r.pipe.Wait(); err != nil {
			return err
		}
		if !r.lender.Take(n) {
			if r.item.spare+n <= mem.Spare {
				r.item.spare += n
				return nil
			}
			if err := r.lender.Budget.Await(&r.lender.Share, n, r.shared.memoryWait, r.gone); err != nil {
				return err
			}
		}
	}
	r.item.paid += n
	return nil
}

// leased returns the memory of what has been read, which is the caller's now.
func (r *receiver) leased() lease {
	item := r.item
	r.item = lease{}
	return item
}
