package main

import (
	"cmp"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"

	"github.com/gradproxy/gradproxy/bpf"
)

// stats is the output of exec --stats. Its names are stable.
type stats struct {
	Connections []connectionStats `json:"connections"`
}

// connectionStats is one connection as the kernel has counted it for the client's socket; an end of stream counts as a
// byte.
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

// A statsFile is where stats are written at the end. nil: nowhere.
type statsFile struct{ w io.WriteCloser }

// createStats creates the file before there is anything to write, so that one that cannot be is known before the
// command runs; "-" is standard error, "" nowhere.
func createStats(file string) (*statsFile, error) {
	switch file {
	case "":
		return nil, nil
	case "-":
		return &statsFile{os.Stderr}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, usagef("--stats: %w", err)
	}
	return &statsFile{f}, nil
}

// write writes the connections and closes the file.
func (f *statsFile) write(flows []bpf.Flow) error {
	if f == nil {
		return nil
	}
	s := stats{Connections: []connectionStats{}} // a list, even an empty one
	for _, f := range flows {
		s.Connections = append(s.Connections, connectionStats{Client: f.Client, Server: f.Server, Open: f.Open, Seconds: f.Lasted.Seconds(),
			SentBytes: f.Sent, ReceivedBytes: f.Received, SentSegments: f.SegmentsSent, ReceivedSegments: f.SegmentsReceived})
	}
	slices.SortFunc(s.Connections, func(a, b connectionStats) int {
		return cmp.Or(a.Server.Compare(b.Server), a.Client.Compare(b.Client))
	})
	return errors.Join(writeJSON(f.w, s), f.w.Close())
}
