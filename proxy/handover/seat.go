package handover

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A Stream is a connection's part of the tunnel.
type Stream = path.Stream

// A Conn is a connection on its present stream. *path.Conn implements it. The Table calls all methods but Abort under
// its lock, so they must not wait, and must not call the Table.
type Conn interface {
	Rest()                 // has the connection come to rest
	RestNext(next bool)    // the same once the peer's side is at rest; false takes that back
	Rests() bool           // Rest was called
	FINSent() bool         // the far app's FIN was passed on
	Done() <-chan struct{} // closed when the connection ends, also at rest
	// File returns another descriptor of the app's socket, which the caller must close.
	File() (*os.File, error)
	// Abort breaks both sides of the connection.
	Abort(code tunnel.Code)
}

// A Seat is a carried connection's place in the Table, by which the connection finds its next stream after a rest.
type Seat struct {
	Key     Key
	Opener  bool // this side has opened the connection, and resumes it
	Opening frame.Opening

	wants chan chan Stream // of a side that is no opener, at rest: it asks an opening that resumes it for the stream
	asked atomic.Bool      // an opening waits for the connection to be at rest
	ended chan struct{}    // closed when the connection has ended here

	// Table.mu guards the rest.
	conn    Conn      // of the stream of the moment
	named   bool      // no other connection has its key, so that it can rest
	resting bool      // nothing is under way on it
	unsent  bool      // and bytes of its app wait here to be sent
	held    bool      // and nothing will be, until it is known which process carries it on
	doomed  bool      // it is being reset, and is not handed over
	waits   time.Time // since when it waits for its next stream, or since the end of the peer's last move if that is later
}

// A Key names a connection among all that a proxy carries.
type Key struct {
	Peer string
	Tag  frame.Tag
}

// NewSeat returns the seat of a connection, which Table.Enter enters.
func NewSeat(c Conn, k Key, opener bool, o frame.Opening) *Seat {
	return &Seat{Key: k, Opener: opener, Opening: o, conn: c, wants: make(chan chan Stream), ended: make(chan struct{})}
}

// A Move is the time in which a peer's process is being replaced.
type Move struct{ ended chan struct{} }

// A handing is the time in which this process is being replaced.
type handing struct {
	decided  chan struct{}   // closed once it is known which process carries the connections on
	moved    bool            // another process does; written before decided is closed
	listed   bool            // Connections was called: a connection that comes later is not among them; guarded by Table.mu
	streams  []Stream        // to the peers, by which they were asked for rest
	shut     map[string]bool // peers whose connections were reset, since they could have kept this process for ever; guarded by Table.mu
	expected map[string]bool // peers from which an answer is awaited; guarded by Table.mu

	patience patience

	waiting map[*net.TCPConn]frame.Opening // apps' connections that were not open yet; guarded by Table.mu
}
