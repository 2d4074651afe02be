package pslite

import "net/netip"

// A life is the life of a worker's process as one server sees it: from its first request until the process ends,
// however often it connects. The first push of a key is the first one within a life.
type life struct {
	number uint64 // no other life has it
	first  int32  // timestamp of its first request
	conn   uint64 // number of its last connection
}

// A lifeOf names the lives that follow each other. Timestamps are counted for each customer.
type lifeOf struct {
	peer, run     uint64         // of the job
	server        netip.AddrPort // where it listens: another process listens elsewhere
	worker        int
	times         uint64 // how often the worker is known to have been replaced
	app, customer int32
}

// A pushKey names a key that a life has pushed.
type pushKey struct{ life, key uint64 }

// pushes counts the pushes of one key within a life.
type pushes struct {
	count uint32
	last  [4]int32 // timestamps of the last ones; the next one replaces last[count%4]
}

// note takes note of a push. It returns the number of the push, from 1 on, and whether it is a repetition: ps-lite
// sends messages again that are not acknowledged (src/resender.h), and the receiver drops repetitions.
func (p *pushes) note(timestamp int32) (n uint32, again bool) {
	for i := range min(p.count, uint32(len(p.last))) {
		if p.last[i] == timestamp {
			return p.count, true
		}
	}
	p.last[p.count%uint32(len(p.last))] = timestamp
	p.count++
	return p.count, false
}
