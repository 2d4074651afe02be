package proxy

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
)

// A seat is a carried connection's place in the Proxy, by which the connection finds its next stream after a rest.
type seat struct {
	key     seatKey
	own     parser.Side
	opening frame.Opening
	wants   chan chan Stream // of the server's side, at rest: it asks an opening that resumes it for the stream
	asked   atomic.Bool      // an opening waits for the connection to be at rest
	ended   chan struct{}    // closed when the connection has ended here

	// Proxy.mu guards the rest.
	conn    *path.Conn // of the stream of the moment
	named   bool       // no other connection has its key, so that it can rest
	resting bool       // nothing is under way on it
	unsent  bool       // and bytes of its app wait here to be sent
	held    bool       // and nothing will be, until it is known who carries it on
	waits   time.Time  // since when it waits for its next stream, or since the end of the peer's last move if that is later
}

// A seatKey names a connection among all that a Proxy carries.
type seatKey struct {
	peer string
	tag  frame.Tag
}

// newSeat returns the seat of a connection.
func newSeat(c *path.Conn, own parser.Side, o frame.Opening) *seat {
	return &seat{key: seatKey{c.Peer, c.Tag}, own: own, opening: o, conn: c, wants: make(chan chan Stream), ended: make(chan struct{})}
}

// A move is the time in which a peer's process is being replaced.
type move struct{ ended chan struct{} }

// A handing is the time in which this process is being replaced.
type handing struct {
	decided chan struct{}                  // closed once it is known who carries the connections on
	moved   bool                           // another process does; written before decided is closed
	listed  bool                           // Connections was called: a connection that comes later is not among them; guarded by Proxy.mu
	streams []Stream                       // to the peers, by which they were asked for rest
	shut    map[string]bool                // peers whose connections were reset, since they could have kept this process for ever; guarded by Proxy.mu
	waiting map[*net.TCPConn]frame.Opening // apps' connections that were not open yet; guarded by Proxy.mu
}

// An underway is an opening that has neither failed nor become a connection with a seat. Proxy.mu guards it.
type underway struct{ ended bool }
