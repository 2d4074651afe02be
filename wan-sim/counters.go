package wansim

// Counters count the packets that one direction of a link has carried since it was made.
type Counters struct {
	Packets uint64 `json:"packets"` // that passed the bottleneck, packets lost behind it included
	Bytes   uint64 `json:"bytes"`   // of these packets, headers from IP upwards included
	Lost    uint64 `json:"lost"`    // packets lost at random behind the bottleneck
	Dropped uint64 `json:"dropped"` // packets that found the queue full, or that the far kernel refused
}

// Stats are the Counters of both directions of a link between the ends a and b.
type Stats struct {
	AB Counters `json:"ab"` // from a to b
	BA Counters `json:"ba"`
}

func (c *Counters) count(f fate, packets, bytes int) {
	if f == dropped {
		c.Dropped += uint64(packets)
		return
	}
	c.Packets += uint64(packets)
	c.Bytes += uint64(bytes)
	if f == lost {
		c.Lost += uint64(packets)
	}
}
