// Package tunnel carries many streams of bytes between sites over a few authenticated connections, the
// carriers, and keeps the streams alive while carriers come and go.
package tunnel

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// A Config describes one site's end of its tunnels. Only Name, Identity and Accept are needed.
type Config struct {
	Name     string   // of this site, not empty; peers show it in their logs
	Identity Identity // files; they are read again when they change
	Peers    []Peer

	// Accept is called, on a goroutine of its own, for each opening that a peer sends. peer is the peer's
	// name in this Config, proved by its certificate. Accept owns opening. It answers by in.Accept or
	// in.Refuse; returning without an answer refuses with CodeCanceled. nil: every opening is refused.
	Accept func(peer string, opening []byte, in *Incoming)

	Resume     time.Duration // how long streams survive without a carrier; 0: 10 minutes
	Carriers   int           // a session's connections, if this side dials, 1 to 16; 0: 2
	Codecs     []string      // told to peers, which see it by Endpoint.Stats; at most 256 of 64 bytes
	Memory     int64         // bytes of buffers, all sessions together; 0: 512 MiB. See the package comment
	Streams    int           // streams that one peer may have open here; 0: 16,384
	Congestion string        // TCP congestion control of carriers; "": bbr where the kernel has it, else the kernel's; "default": the kernel's

	// Insecure carries everything in clear and believes the name that a peer says. It is refused unless both
	// addresses of a carrier are loopback.
	Insecure bool

	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP, without MPTCP
	Now    func() time.Time                                                     // what certificates are checked against; nil: time.Now
	Events Events                                                               // told as things happen
	Logger *slog.Logger                                                         // nil: silent
}

// Identity names PEM files: the site's certificate (chain), its key, and the authorities that peers'
// certificates come from. A file that becomes unreadable leaves the identity as it was, and a warning.
type Identity struct {
	Cert, Key, CA string
}

// A Peer is another site.
type Peer struct {
	Name string // how this side calls it
	Dial string // host:port; "": this side waits to be dialed
	ID   string // SPIFFE id, which must be the only URI in its certificate: "spiffe://lab/tokyo"
}

// Events are told what happens to sessions, for counters. They must return at once; nil ones are left out.
type Events struct {
	CarrierUp     func(peer string)
	CarrierDown   func(peer string, err error)    // lost, not retired in order
	SessionUp     func(peer string)               // a new session: none of its streams is open yet
	SessionLost   func(peer string, reason error) // all its streams were reset
	CarrierFailed func(peer string, err error)    // a dial or handshake; peer is "" while it is not known
}

// An Endpoint is one site's end of its tunnels. Its methods may be called concurrently.
type Endpoint struct {
	cfg Config
}

// New returns an Endpoint which already dials the peers that have an address. It fails if the configuration
// is wrong or the identity cannot be read. The caller must Close it.
func New(cfg Config) (*Endpoint, error) { return nil, errNotYet }

// Listen listens for carriers on a TCP address. Unlike net.Listen's, its sockets never speak MPTCP, which no
// socket filter sees.
func Listen(address string) (net.Listener, error) { return nil, errNotYet }

// Serve accepts carriers from ln until the Endpoint is closed (it then returns nil) or ln fails. It closes ln.
func (e *Endpoint) Serve(ln net.Listener) error { return errNotYet }

// Open asks peer for a new stream. opening, at most 4,096 bytes, is for its Config.Accept; the tunnel does not
// look into it and does not retain it. Open returns when the answer is there: *RefusedError if it is no.
// Without a session it fails with ErrPeerDown at once; while one is suspended (all carriers lost, resume time
// not over) it waits, as it does while the peer allows no further stream. When ctx ends the opening is
// withdrawn.
func (e *Endpoint) Open(ctx context.Context, peer string, opening []byte) (*Stream, error) {
	return nil, errNotYet
}

// Drain takes no new streams in either direction, tells the peers, and waits until all streams are finished
// or ctx ends. Carriers stay up; Close ends them.
func (e *Endpoint) Drain(ctx context.Context) error { return errNotYet }

// Close resets what streams there are, tells the peers, and releases everything.
func (e *Endpoint) Close() error { return errNotYet }

// SetPeers replaces the list of peers. Sessions with peers that stay (same name and ID) live on; the streams
// of those that go are reset.
func (e *Endpoint) SetPeers(peers []Peer) error { return errNotYet }

// Stats returns a snapshot of every configured peer, in the order of Config.Peers.
func (e *Endpoint) Stats() []PeerStats { return nil }

// PeerStats is a snapshot of the session with one peer; counters are since New.
type PeerStats struct {
	Peer     string
	Carriers int           // attached now; 0 with Session: suspended
	Session  bool          // there is one
	Streams  int           // open now
	RTT      time.Duration // smallest of the last PINGs; 0: unknown
	Rate     float64       // bytes per second that the carriers have delivered, the most of the last 10 s; 0: unknown
	Codecs   []string      // the peer's list
	Draining bool          // the peer takes no new streams

	Sessions uint64 // begun
	Outages  uint64 // times that all carriers were gone
	Replayed uint64 // bytes sent again after the loss of a carrier
	Sent     uint64 // bytes of streams handed to carriers, replays left out
	Received uint64 // bytes of streams taken from carriers, duplicates left out
}
