package receive

import (
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A reservation takes memory before it is needed: a frame's body, and room for the elements that it decodes to, are
// reserved before the body is read.
type reservation struct {
	alloc  memory.Allocator
	pipe   *pipe.Pipe      // frames that were read before; they give back their memory as they are delivered
	within time.Duration   // how long to wait for memory that others hold
	gone   <-chan struct{} // ends the wait

	next          reserved     // memory of the frame that is being read
	slots         memory.Share // memory of slots, until the end
	reservedSlots int
}

// reserved is the memory of one item of the pipe.
type reserved struct {
	taken   int // bytes of the budget
	spare   int // bytes of the connection's spare; only one item has any
	unused  int // bytes that are reserved, and wait for the blocks of a Gather
	lengths int // bytes of room in which an encoding is made longer: the item's blocks are decoded one after another
}

const (
	// blockCost is the bytes of memory of a block beside its elements and encoding.
	blockCost = 256
	// slotCost is the bytes of memory that a slot takes.
	slotCost = 320
	// slotsAtOnce is how many slots are reserved at a time, after as many that are not.
	slotsAtOnce = 32
)

// reserve takes n bytes for the frame that is being read.
func (r *reservation) reserve(n int) error {
	if n <= r.next.unused {
		r.next.unused -= n
		return nil
	}
	n -= r.next.unused
	r.next.unused = 0
	return r.hold(n)
}

// reserveLonger takes n bytes for the frame that is being read, and room in which an encoding becomes as long as longer
// says, unless a block of the same item has taken as much.
func (r *reservation) reserveLonger(n, longer int) error {
	if more := memory.Footprint(longer) - r.next.lengths; more > 0 {
		r.next.lengths += more
		n += more
	}
	return r.reserve(n)
}

// reserveGathered takes memory for the blocks of a Gather together, so that none waits for memory that another has
// meanwhile. The blocks' codecs are not known yet, so there is room in which the largest encoding can be made longer.
func (r *reservation) reserveGathered(sizes []int) error {
	need, largest := 0, 0
	for _, n := range sizes {
		need += memory.Footprint(n) + memory.Footprint(1+n) + blockCost
		largest = max(largest, n)
	}
	need += memory.Footprint(largest)
	if err := r.hold(need); err != nil {
		return err
	}
	r.next.unused = need
	return nil
}

// giveUnused gives back the bytes that the blocks of a Gather have not used, now that all of them are read. Bytes of
// the connection's spare stay with the item.
func (r *reservation) giveUnused() {
	if r.next.spare == 0 {
		r.alloc.Give(r.next.unused)
		r.next.taken -= r.next.unused
	}
	r.next.unused = 0
}

// reserveSlot takes memory for one more slot than there are.
func (r *reservation) reserveSlot(slots int) error {
	if slots < r.reservedSlots+slotsAtOnce {
		return nil
	}
	const n = slotsAtOnce * slotCost
	if b := r.alloc.Budget; !b.Take(&r.slots, n) {
		if err := b.Await(&r.slots, n, r.within, r.gone); err != nil {
			return err
		}
	}
	r.reservedSlots += slotsAtOnce
	return nil
}

// giveSlots gives back the memory of all slots.
func (r *reservation) giveSlots() { r.alloc.Budget.Give(&r.slots, r.reservedSlots*slotCost) }

// hold takes n bytes. Where the budget has none, everything before is delivered first; then the spare bytes have room,
// or it is the turn of other connections.
func (r *reservation) hold(n int) error {
	if !r.alloc.Take(n) {
		if err := r.pipe.Wait(); err != nil {
			return err
		}
		if !r.alloc.Take(n) {
			if r.next.spare+n <= memory.Spare {
				r.next.spare += n
				return nil
			}
			if err := r.alloc.Budget.Await(&r.alloc.Share, n, r.within, r.gone); err != nil {
				return err
			}
		}
	}
	r.next.taken += n
	return nil
}

// take returns the memory of the frame that has been read, which the caller must give back.
func (r *reservation) take() reserved {
	x := r.next
	r.next = reserved{}
	return x
}

// give gives back the memory of an item.
func (r *reservation) give(x reserved) { r.alloc.Give(x.taken) }
