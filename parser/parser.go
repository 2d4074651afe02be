// Package parser tells tensors from other bytes in the TCP connections of training jobs.
//
// A [Protocol] makes two [Parser]s for a connection, one for each direction. A Parser is given the bytes of its
// direction as they come, in pieces of any size, and tells for each byte whether it belongs to a tensor, and to which.
// It never waits, and never changes a byte: bytes that it does not understand are opaque and travel as they came.
//
// Incomplete, foreign and broken input have three answers: a header that is cut short is opaque so far; a stream of
// another protocol ends in [ErrForeign]; a stream that stops being understood ends in any other error. In each case
// the bytes travel verbatim.
package parser

import (
	"errors"
	"net/netip"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Parser tells the tensors in one direction of a connection from its other bytes. It classifies bytes;
// it never changes, drops, reorders or delays them.
type Parser interface {
	// Next classifies a prefix of b, at least one byte of it. It does not wait for more: a header that
	// is cut short is opaque so far, and the Parser keeps a copy of the bytes that it needs. How the stream is cut
	// into calls must not change the class of any byte; facts from other connections may, so tests fix their order.
	// After an error (the stream is not, or no longer, understood) b and all later bytes travel verbatim. After an
	// error that wraps ErrForget this direction's tensors lose their state as well. An error that wraps ErrReset says
	// that an earlier verdict was false: if loss was used, the connection is reset. Next must neither modify nor retain
	// b, which is not empty.
	Next(b []byte) (Segment, error)
}

// A Segment is a run of bytes of one kind.
type Segment struct {
	Len    int           // bytes, at least 1
	Tensor tensor.Tensor // the zero Tensor: opaque bytes
}

// A Protocol makes the parsers of a new connection. They may share facts with each other and with the other connections
// of the job (ps-lite answers a request on another connection). Facts must not cross jobs, nor peers: in a configured
// job the words of the Own side count for all peers, the other side's for their peer alone (package gloo says where
// these count for others). A Protocol must be safe for concurrent use, and so must the two parsers of a connection with
// each other.
type Protocol interface {
	String() string
	// Traits returns the same value whenever it is called.
	Traits() Traits
	New(c Conn) (fromClient, fromServer Parser)
}

// Traits are the promises of a Protocol. The zero Traits promises nothing.
type Traits struct {
	// Reconnects: an app connects again after a lost connection and goes on with the same tensors. A proxy may then
	// keep residuals and last values when a connection ends.
	Reconnects bool
}

// Conn identifies a connection. Both proxies see the same Client and Server: the opening carries them.
type Conn struct {
	Job string // the configured job that matches both ends, or ""

	// Peer is the site through which the connection goes. Facts that the other side tells must count for connections
	// through the same Peer only, but see package gloo.
	Peer string

	Client, Server netip.AddrPort // as the app sees them
	Number         int            // among the job's connections with these two addresses (ports left out)
	Ranks          int            // at most, if configured; 0: unknown
	Sums           Sums           // which of the job's sums may lose something
	Calls          Calls          // of the app at the own end; nil: nobody sees them
	Own            Side           // the side whose bytes this proxy encodes; the parser of the other side only learns
}

// Sums says which of a job's sums may lose something. The wire does not tell gradients from other sums.
type Sums uint8

const (
	SumsProved    Sums = iota // sums that Calls prove to be gradients
	SumsGradients             // the user says that all sums are gradients; Calls may prove a sum to be something else
	SumsNone                  // none
)

var sumsNames = [...]string{"proved", "gradients", "none"}

// SumsNames lists the names of all Sums, in the order of their values.
func SumsNames() []string { return sumsNames[:] }

// A Side is one end of a connection.
type Side uint8

const (
	Client Side = iota // the end that sent SYN
	Server
)

// String returns "client" or "server".
func (s Side) String() string {
	if s == Server {
		return "server"
	}
	return "client"
}

var (
	// ErrForeign says that the stream is not of the Parser's protocol.
	ErrForeign = errors.New("parser: not this protocol")
	// ErrForget is wrapped by an error after which this direction's tensors lose their state.
	ErrForget = errors.New("parser: tensors of this direction are forgotten")
	// ErrReset is wrapped by an error that says that an earlier verdict was false: if loss was used on its
	// strength, the connection must be reset.
	ErrReset = errors.New("parser: an earlier verdict was false")
)
