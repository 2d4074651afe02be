package datagram

import "time"

// Of each outcomePackets more than one in outcomeHeavy is lost, for outcomeFor.
const (
	outcomePackets = 32
	outcomeHeavy   = 4
	outcomeFor     = time.Second
)

// An outcome counts packets that were lost, and notices when they are very many for long: a receiver that its host does
// not let run loses as many for a moment.
type outcome struct {
	packets, lost int
	since         time.Duration // when very many began to be lost; 0: they are not
	heavy         uint64        // times that it has noticed
}

func (o *outcome) count(now time.Duration, lost bool) {
	o.packets++
	if lost {
		o.lost++
	}
	if o.packets < outcomePackets {
		return
	}
	switch {
	case o.lost <= outcomePackets/outcomeHeavy:
		o.since = 0
	case o.since == 0:
		o.since = now
	case now-o.since >= outcomeFor:
		o.heavy++
		o.since = now
	}
	o.packets, o.lost = 0, 0
}
