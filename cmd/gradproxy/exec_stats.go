package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	"github.com/gradproxy/gradproxy/bpf"
)

// stats is what exec --stats writes. Its names are stable.
type stats struct {
	Connections []connectionStats `json:"connections"`
}

// connectionStats is one connection as the kernel has counted it for the client's socket; an end of stream counts as a byte.
type connectionStats struct {
	Client           netip.AddrPort `json:"client"`
	Server           netip.AddrPort `json:"server"`
	Open             bool           `json:"open"`
	Seconds          float64        `json:"seconds"`
	SentBytes        uint64         `json:"sent_bytes"`
	ReceivedBytes    uint64         `json:"received_bytes"`
	SentSegments     uint32         `json:"sent_segments"`
	ReceivedSegments uint32         `json:"received_segments"`
}

// writeStats writes to a file; "-" is standard error, "" nowhere.
func writeStats(file string, flows []bpf.Flow) (err error) {
	var w io.Writer = os.Stderr
	switch file {
	case "":
		return nil
	case "-":
	default:
		f, err := os.Create(file)
		if err != nil {
			return fmt.Errorf("exec: --stats: %w", err)
		}
		defer f.Close()
		w = f
	}
	s := stats{Connections: []connectionStats{}} // a list, even an empty one
	for _, f := range flows {
		s.Connections = append(s.Connections, connectionStats{Client: f.Client, Server: f.Server, Open: f.Open, Seconds: f.Lasted.Seconds(),
			SentBytes: f.Sent, ReceivedBytes: f.Received, SentSegments: f.SegmentsSent, ReceivedSegments: f.SegmentsReceived})
	}
	slices.SortFunc(s.Connections, func(a, b connectionStats) int {
		return cmp.Or(a.Server.Compare(b.Server), a.Client.Compare(b.Client))
	})
	return writeJSON(w, s)
}
