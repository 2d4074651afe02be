package shadow

import (
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Trial codes values by one candidate as a proxy would send them. It is used by one goroutine.
type Trial interface {
	// Line begins the way of a sampled tensor's values over one connection to a peer, which has the codecs of these
	// names; nil: all.
	Line(f policy.Flow, peer string, has []string) Line
	// Short reports whether memory was too little at any time, so that residuals which should wait for later values of
	// their tensor were lost.
	Short() bool
	Close()
}

// A Line is one connection's part of a Trial.
type Line interface {
	// Send sends a value of t, whose segments have the Holds that pieces say.
	Send(t tensor.Tensor, value []byte, pieces []Piece) (Measure, error)
	Close()
}

// A Piece is the bytes of a value that its sender wrote without waiting for an answer, as its parser said.
type Piece struct{ Len, Hold int }
