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

// A Stream is a connection's part of the tunnel: ordered bytes both ways that survive the loss of a carrier.
// *tunnel.Stream implements it and documents its methods.
type Stream = path.Stream

// Config has the parts of a Proxy. Open, Codecs and Settings.Policy are needed.
type Config struct {
	// Open opens a stream to a peer. tunnel.Endpoint has such a method.
	Open func(ctx context.Context, peer string, opening []byte) (Stream, error)
	// Await waits for a session with a peer. tunnel.Endpoint has such a method. nil: if Open returns
	// tunnel.ErrPeerDown, the app is reset at once.
	Await func(ctx context.Context, peer string) error
	// Hold is how long a connection waits for a session with its peer before its app is reset. 0: 30 s.
	Hold time.Duration
	// DirectFirst limits the wait of connections to a peer with which no session has come up yet. After a few seconds
	// (directAfter) they go to their servers directly, from this host and in the clear.
	DirectFirst bool
	// Codecs makes the codec that a peer has declared from its text. An unknown text must be an error.
	Codecs func(text string) (codecs.Codec, error)
	// PeerCodecs lists the names of the codecs that a peer has, as the peer's hello said. nil: all peers have all
	// codecs.
	PeerCodecs func(peer string) []string
	// Protocols are the protocols that are tried, in this order. none: everything travels verbatim.
	Protocols []parser.Protocol
	// Settings are the first settings. Apply replaces them.
	Settings Settings
	// Control sets options of the sockets that dial servers, as net.Dialer's Control does. nil: none are set.
	Control func(network, address string, c syscall.RawConn) error
	// AsClient sets options of the sockets that dial servers from their client's address and port. It is for a gateway
	// through which the packets to the clients pass, and is used only for clients in the peer's own networks. nil:
	// servers see this host's address.
	AsClient func(network, address string, c syscall.RawConn) error
	// Own has the addresses of this process's listeners. The Proxy never dials them.
	Own []netip.AddrPort
	// Calls returns the view of the collectives that an app of this host calls, for the parsers of one of the app's
	// connections, or nil if nobody sees the calls. The app's socket is the other end of conn, and sees it under conn's
	// own address or under far. Calls may keep conn, which is closed when the connection ends, but must neither read
	// nor write it. The Proxy calls Calls once for a connection, when the connection begins. Calls must not block: slow
	// work, such as finding the process, must happen later, while parser.Calls knows nothing. nil: nobody sees any
	// calls.
	Calls func(conn syscall.Conn, far netip.AddrPort) parser.Calls
	// Excerpt returns the part of this site's settings that is about a peer, for that peer. It must not be longer than
	// MaxExcerpt, and must not tell of other peers. nil: no peer is told anything.
	Excerpt func(peer string) []byte
	// View returns this site's view of its traffic with a peer, for that peer. It must not be longer than MaxView, and
	// must not tell of other peers. nil: no peer is told anything.
	View func(peer string) []byte
	// Places bounds the descriptors of connections. A connection that Serve or Accept is given has one place already. A
	// connection that bypasses the tunnel takes a second one. nil: there is no bound.
	Places Places
	// Pipes bounds the pipes, of two descriptors each, for connections that bypass the tunnel. 0: 256.
	Pipes int
	// PollGates bounds the connections that have poll gates: they are read at less cost, and take PollGateDescriptors
	// more descriptors each. 0: 1024.
	PollGates int

	// Answer is how long an opening waits for the peer's answer before its app is reset. The time that dialling the
	// server may take comes on top. It should be as long as connections outlive an outage, which is the tunnel's
	// Resume. 0: 10 minutes.
	Answer time.Duration
	// Memory bounds the bytes that all connections hold in each direction, from app to tunnel and from tunnel to app:
	// bytes that were read, blocks before and after their encoding, and bytes that wait with blocks. When Memory is
	// spent, each connection may still hold 32 KiB in each direction and goes on slowly, so 10,000 connections hold up
	// to Memory and 313 MiB in each direction. Memory does not include the parsers, which may hold a quarter as much;
	// when that is spent, the connections whose parsers hold most travel verbatim. Neither does it include the buffers
	// of tunnels, Values, Residuals, and the memory of codecs for the blocks that are being coded. 0: 256 MiB.
	Memory int64
	// Values bounds the bytes of the values that are shared with one peer in one direction, except for a value that is
	// just being read. Values of a lost value stream that apps have yet to read may take as much again. 0: 512 MiB.
	// negative: no values are shared.
	Values int64
	// Residuals bounds the bytes of the memory of tensors that may lose something. 0: 1 GiB.
	Residuals int64
	// ShadowMemory bounds the bytes that the trials of Settings.Shadow take. 0: the constant ShadowMemory.
	ShadowMemory int64
	// ShadowShare is the share of one core that the trials take; from 1 on they never rest. 0: a 200th of all
	// cores, at most one core.
	ShadowShare float64
	// Workers is the number of cores that encode and decode. 0: all.
	Workers int
	// Log takes the log. The number of lines that peers and jobs can trigger is bounded (package logsample). nil:
	// silent.
	Log *slog.Logger
	// Metrics counts. nil: nothing is counted.
	Metrics *Metrics
}

// ShadowMemory is the bound, in bytes, that a Config.ShadowMemory of 0 stands for.
const ShadowMemory = shadow.DefaultMemory

// ParsersShare is a divisor: the parsers of all connections together may hold Config.Memory / ParsersShare bytes, which
// Config.Memory does not include.
const ParsersShare = 4

// SpareMemory is the number of bytes that a connection may hold in each direction when Config.Memory is spent.
const SpareMemory = memory.Spare

// TableMemory returns the bytes that the table of tensors takes if Config.Residuals is residuals.
func TableMemory(residuals int64) int64 {
	_, takes := tensors.Beside(residuals)
	return takes
}

// ValuesTimes is a factor: the values that are shared with one peer may take ValuesTimes times Config.Values, for the
// two directions and for a lost value stream.
const ValuesTimes = 3

// Abilities of a proxy. A hello lists the names of its proxy's abilities among the names of its codecs.
const (
	SharedValues = cache.Name       // it has a value cache
	SharedParts  = cache.Parts      // its value cache takes parts of values
	ShortValues  = cache.Short      // its value cache takes values in their short form
	Models       = cache.Models     // its value cache takes values that are coded against those of another tensor
	Short        = coder.Short      // it decodes encodings without the codes of zeros
	Checksums    = coder.Checksums  // it decodes lossy blocks that keep their CRC-32
	Masks        = frame.Masks      // it masks elements again that a WebSocket's client has masked
	Excerpts     = inquiry.Excerpts // it gives peers excerpts of its settings
	Views        = inquiry.Views    // it gives peers views of its traffic with them
)

// Bounds on the answers to a peer's questions, in bytes.
const (
	MaxExcerpt = inquiry.MaxExcerpt
	MaxView    = inquiry.MaxView
)

// PollGateDescriptors is the number of descriptors that a connection with poll gates takes beside its own.
const PollGateDescriptors = app.GateDescriptors

// Places gives connections places, one each. intercept.Places implements it.
type Places interface {
	// Enter waits for a place, and reports whether it has got one before ctx ended. After true the caller must call
	// Leave.
	Enter(ctx context.Context) bool
	// Leave gives a place back.
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
