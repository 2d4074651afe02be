package bpf

import (
	"fmt"
	"time"
)

// Flows returns the redirected connections, as many of the latest as the kernel's table has room for (65,536), in no
// order. After Close there is an error.
func (h *Hooks) Flows() ([]Flow, error) {
	now, err := monotonic()
	if err != nil {
		return nil, fmt.Errorf("bpf: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed() {
		return nil, errClosed
	}
	var all []Flow
	var cookie uint64
	var f bpfFlow
	entries := h.objects.Flows.Iterate()
	for entries.Next(&cookie, &f) {
		end := f.Closed
		if end == 0 {
			end = uint64(now)
		}
		all = append(all, Flow{
			Client: f.Client.addrPort(), Server: bpfEnd{Ip: f.Server.Ip, Port: f.Server.Port}.addrPort(), Open: f.Closed == 0, Lasted: time.Duration(end - f.Opened),
			Sent: f.Sent, Received: f.Received, SegmentsSent: f.SegmentsSent, SegmentsReceived: f.SegmentsReceived,
		})
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("bpf: flows: %w", err)
	}
	return all, nil
}

// Total returns the sum over all redirected connections. After Close there is an error.
func (h *Hooks) Total() (Total, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed() {
		return Total{}, errClosed
	}
	var t bpfTotal
	if err := h.objects.Totals.Lookup(uint32(0), &t); err != nil {
		return Total{}, fmt.Errorf("bpf: totals: %w", err)
	}
	return Total{Taken: t.Taken, Refused: t.Refused, Sent: t.Sent, Received: t.Received,
		SegmentsSent: t.SegmentsSent, SegmentsReceived: t.SegmentsReceived}, nil
}
