package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/inquiry"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/tensors"
)

// A Stream is a connection's in the tunnel: ordered bytes both ways that survive the loss of a carrier.
// *tunnel.Stream is one; its methods are documented there.
type Stream = path.Stream

// Config has the parts of a Proxy. Open, Codecs and Settings.Policy are needed.
type Config struct {
	// Open opens a stream to a peer; tunnel.Endpoint has it.
	Open func(ctx context.Context, peer string, opening []byte) (Stream, error)
	// Await waits for a session with a peer; tunnel.Endpoint has it. nil: where Open says tunnel.ErrPeerDown, apps are
	// reset at once.
	Await func(ctx context.Context, peer string) error
	// Hold is how long a connection waits for a session with its peer; then its app is reset. 0: 30 s.
	Hold time.Duration
	// DirectFirst has connections to a peer with which no session has come up yet wait a few seconds only
	// (directAfter), and then go to their servers directly, from here and in the clear.
	DirectFirst bool
	// Codecs makes the codecs that peers declare, of their texts. Unknown texts are errors.
	Codecs func(text string) (codecs.Codec, error)
	// PeerCodecs lists the names of the codecs that a peer has, as its hello said; nil: all peers have all.
	PeerCodecs func(peer string) []string
	Protocols  []parser.Protocol                                      // tried in this order; none: everything travels verbatim
	Settings   Settings                                               // may be replaced while the Proxy runs
	Control    func(network, address string, c syscall.RawConn) error // of sockets that dial servers, as net.Dialer's
	// AsClient sets the options of sockets that dial servers from their client's address and port, as a gateway does
	// whose packets to clients pass it; nil: servers see this host. It is used only for clients in the peer's own
	// networks.
	AsClient func(network, address string, c syscall.RawConn) error
	Own      []netip.AddrPort // addresses of this process's listeners, which it never dials
	// Calls returns the view of the collectives that an app of this host calls, for the parsers of one of its
	// connections; nil: nobody sees them. The app's socket is the other end of conn, and sees it under conn's own
	// address or under far. Calls may keep conn, which is closed when the connection ends, and must neither read nor
	// write it. Calls is called once for a connection, when that begins, and must not block: slow work, such as finding
	// the process, must happen later, while parser.Calls knows nothing. A nil field: nobody sees any calls.
	Calls func(conn syscall.Conn, far netip.AddrPort) parser.Calls
	// Excerpt returns the part of this site's settings that is about a peer, for that peer; it must not be longer than
	// MaxExcerpt. It must not tell of other peers. nil: no peer is told anything.
	Excerpt func(peer string) []byte
	// View returns how this site sees its traffic with a peer, for that peer; it must not be longer than MaxView. It
	// must not tell of other peers. nil: no peer is told anything.
	View func(peer string) []byte
	// Places bounds the descriptors of connections. A connection that Serve or Accept is given has one; one that
	// bypasses the tunnel takes a second. nil: there are enough.
	Places Places
	Pipes  int // of two descriptors each, at most, for connections that bypass the tunnel; 0: 256
	// PollGates bounds the connections that are read at less cost, and take PollGateDescriptors more each; 0: 1024.
	PollGates int

	// Answer is how long an opening waits for the peer's answer, beside the time that dialling the server may take;
	// then its app is reset. The time that connections outlive an outage fits, the tunnel's Resume. 0: 10 minutes.
	Answer time.Duration
	// Memory bounds the bytes that connections hold in each direction, from app to tunnel and from tunnel to app: bytes
	// that were read, blocks as they are and encoded, and bytes that wait with them. When they are spent each
	// connection may still hold 32 KiB in each direction, with which it gets on, if slowly: so 10,000 connections hold
	// up to Memory and 313 MiB in each. Parsers may hold a quarter as much beside it; the connections whose parsers
	// hold most travel verbatim when it is spent. Beside it are also the buffers of tunnels, Values, Residuals, and the
	// memory of codecs for the blocks that Workers are at. 0: 256 MiB.
	Memory int64
	// Values bounds the bytes of values that are shared with each peer, each way, but for one that is just being read.
	// Values of a lost value stream that apps have yet to read may take as much again. 0: 512 MiB, negative: none are
	// shared.
	Values    int64
	Residuals int64 // bytes of the memory of tensors that may lose something; 0: 1 GiB
	// ShadowMemory bounds the bytes that trials of Settings.Shadow take. 0: ShadowMemory.
	ShadowMemory int64
	ShadowShare  float64      // of one core that trials take; from 1 on they never rest. 0: one part in a hundred of all cores
	Workers      int          // cores that encode and decode; 0: all
	Log          *slog.Logger // nil: silent. Lines that peers and jobs can trigger are bounded: see package logsample
	Metrics      *Metrics     // nil: nothing is counted
}

// ShadowMemory is Config.ShadowMemory where that is 0.
const ShadowMemory = shadow.DefaultMemory

// ParsersShare is the part of Config.Memory that the parsers of all connections may hold together beside it, one in so
// many.
const ParsersShare = 4

// SpareMemory is how many bytes a connection may hold in each direction beside Config.Memory.
const SpareMemory = memory.Spare

// TableMemory returns the bytes that the table of tensors takes where Config.Residuals is so many.
func TableMemory(residuals int64) int64 {
	_, takes := tensors.Beside(residuals)
	return takes
}

// ValuesTimes is how many times Config.Values the values that are shared with one peer may take: each way, and the ones
// of a lost value stream.
const ValuesTimes = 3

// SharedValues is the name under which hellos list, among codecs, that a proxy has a value cache.
const SharedValues = cache.Name

// SharedParts is the same of one that takes parts of such values.
const SharedParts = cache.Parts

// ShortValues is the same of one that takes such values in their short form.
const ShortValues = cache.Short

// Models is the same of one that takes such values coded against values of another tensor.
const Models = cache.Models

// Short is the name under which hellos list, among codecs, that a proxy understands encodings without the codes of
// zeros.
const Short = coder.Short

// Excerpts is the name under which hellos list, among codecs, that a proxy gives its peers excerpts of its settings,
// and MaxExcerpt bounds the bytes of one.
const (
	Excerpts   = inquiry.Excerpts
	MaxExcerpt = inquiry.MaxExcerpt
)

// Views is the name under which hellos list, among codecs, that a proxy gives its peers views of its traffic with them,
// and MaxView bounds the bytes of one.
const (
	Views   = inquiry.Views
	MaxView = inquiry.MaxView
)

// Checksums is the name under which hellos list, among codecs, that a proxy understands lossy blocks that keep their
// CRC-32.
const Checksums = coder.Checksums

// Masks is the name under which hellos list, among codecs, that a proxy masks elements again that a WebSocket's client
// has masked.
const Masks = frame.Masks

// PollGateDescriptors is how many descriptors a connection that is one of Config.PollGates takes besides its own.
const PollGateDescriptors = app.GateDescriptors

// Places are given to connections, one each; intercept.Places has some. Enter waits, and reports false if ctx ends
// first; after true the place is given back by Leave.
type Places interface {
	Enter(ctx context.Context) bool
	Leave()
}

// setDefaults replaces zero fields by their defaults.
func (c *Config) setDefaults() {
	c.Memory = cmp.Or(c.Memory, 256<<20)
	c.Answer = cmp.Or(c.Answer, 10*time.Minute)
	c.Hold = cmp.Or(c.Hold, 30*time.Second)
	c.PollGates = cmp.Or(c.PollGates, 1024)
	c.ShadowMemory = cmp.Or(c.ShadowMemory, ShadowMemory)
	c.ShadowShare = cmp.Or(c.ShadowShare, min(1, shadow.DefaultShare*float64(runtime.GOMAXPROCS(0))))
	c.Residuals = cmp.Or(c.Residuals, 1<<30)
	c.Values = cmp.Or(c.Values, 512<<20)
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}
