package tc

// Counters count the packets that one direction of a link has carried since its plan was applied. Packets and bytes are
// as on the wire, headers from IP upwards included.
type Counters struct {
	Packets uint64 `json:"packets"` // that found room in the queue, packets lost at random included
	Bytes   uint64 `json:"bytes"`   // of these packets; KernelPlan: but for the lost ones
	Lost    uint64 `json:"lost"`    // packets dropped at random
	Dropped uint64 `json:"dropped"` // packets that found the queue full
	Marked  uint64 `json:"marked"`  // packets marked as having met congestion
}
