package cache

import (
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A writerSlot is a block of a tensor whose last value the peer holds. submit guards text, enc, peerHas, lossy and
// reverse.
type writerSlot struct {
	blockKey
	model   blockKey // of the peer's values that predict this slot's; the same block where no other does
	coder   coder.Slot
	id      uint32
	text    string // of the codec
	enc     codecs.Encoder
	copy    *reference.Copy
	peerHas bool // the peer has a value of it
	lossy   int  // values that may have lost something since the last that did not

	gauge    gauge
	measured int // values that may have lost something; changed in turn

	// See reverse.go.
	version  uint64 // of the last value; 0: none
	put      bool   // the peer will know the slot before any control frame that is sent from now on
	keeps    bool   // earlier values are kept
	leaving  bool   // it was evicted
	reversed bool   // one of its values was a difference to a value of the peer
	seen     uint64 // version that the peer has seen
	reverse  reverseEncoder
	answered uint64 // the number of the peer's values of the block when the last value was put here
	latest   *entry
}

// ahead reports whether a slot may have no new value before the peer has seen more of the last ones.
func (slot *writerSlot) ahead() bool { return slot.keeps && slot.version-slot.seen >= keepValues }

// An entry is a value that the peer holds, or soon will.
type entry struct {
	id   uint64
	slot *writerSlot
	raw  []byte // as it was before it was coded; nobody changes it
	refs int    // references that were not delivered, and uses of the entry by code that still reads it
	lost bool   // the codec may have lost something. Guarded by submit

	epoch   uint64 // of the value stream
	mayLose bool   // its codec may lose something
	marks   []mark // by which it is found by its content; nil: it is not
	name    name   // of its content; zero: it has none

	followers map[*place]struct{} // the places in it

	served   []frame.Tag // connections that have referred to it, if it may have lost something; else at most one of them
	room     int         // bytes that its frame is made in
	reserved int         // bytes of the budget for them, until it has been sent
}

// serves reports whether t may refer to an entry that is equal to its value. One that has lost something serves
// connections whose value may lose something, once each: a connection that sends the same value again has the next
// difference sent, so that the delivered value comes closer, unless v says that such a value is wanted as it was.
func (e *entry) serves(t frame.Tag, v *Put) bool {
	return !e.lost || codecs.Lossy(v.Choice.Codec) && (v.Again || !slices.Contains(e.served, t))
}

// serve takes note that t refers to the entry.
func (e *entry) serve(t frame.Tag) {
	if !slices.Contains(e.served, t) {
		e.served = append(e.served, t)
	}
}

// A place is the end of a span in its entry.
type place struct {
	entry *entry // nil: there was none
	at    int
}

// move has a place be another. Peer.mu is held.
func (p *place) move(to place) {
	if p.entry != nil {
		delete(p.entry.followers, p)
	}
	if *p = to; p.entry == nil {
		return
	}
	if p.entry.followers == nil {
		p.entry.followers = map[*place]struct{}{}
	}
	p.entry.followers[p] = struct{}{}
}
