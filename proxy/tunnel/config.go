package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"
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

	Resume   time.Duration // how long streams survive without a carrier; 0: 10 minutes
	Carriers int           // a session's connections, if this side dials, 1 to 16; 0: 2
	Codecs   []string      // told to peers, which see it by Endpoint.Stats; at most 256 of 64 bytes
	Memory   int64         // bytes of buffers, all sessions together; 0: 512 MiB. See the package comment
	Streams  int           // streams that one peer may have open here; 0: 16,384

	// Congestion names the TCP congestion control of carriers. "" and "auto" are bbr where the kernel has it, helped
	// with bursts, and else the kernel's own; "default" is the kernel's own.
	Congestion string

	// Pad makes the bytes that leave for peers at once a multiple of so many bytes, so that an observer of the network
	// learns less of the sizes of messages: 1 KiB to 256 KiB; 0: nothing is added. Peers of a version without it get no
	// padding, and the log says so.
	Pad int

	// Insecure carries everything in clear and believes the name that a peer says. It is refused unless both
	// addresses of a carrier are loopback.
	Insecure bool

	// Carrier is "tls" or "" for TLS 1.3 over TCP, "dtls" for DTLS 1.2 over UDP with a congestion control of its own,
	// or "auto" for the better one of both. Both sites must have the same, or one of them "auto".
	Carrier string

	HalfOpen int // handshakes under way of connections that others have dialed, each with a descriptor; 0: 1024
	// Transport makes the carriers; nil: the kind that Carrier names. Congestion, Insecure and Dial are for TCP.
	Transport Transport

	// Options sets options of carriers' sockets for which this process lacks the capability; nil: nothing does.
	Options SocketOptions

	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP, without MPTCP
	Now    func() time.Time                                                     // the time against which certificates are checked; nil: time.Now
	Events Events                                                               // told as things happen
	Logger *slog.Logger                                                         // nil: silent
}

// A Peer is another site.
type Peer struct {
	Name string // how this side calls it
	Dial string // host:port; "": this side waits to be dialed
	ID   string // SPIFFE id, which must be the only URI in its certificate: "spiffe://lab/tokyo"
}

func (c *Config) setDefaults() {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Carriers, 2)
	set(&c.Streams, 16384)
	if c.Resume == 0 {
		c.Resume = 10 * time.Minute
	}
	if c.Memory == 0 {
		c.Memory = 512 << 20
	}
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// check returns every fault.
func (c *Config) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("tunnel: "+format, args...)) }
	if c.Name == "" || len(c.Name) > maxName {
		fault("site name of %d bytes, not 1 to %d", len(c.Name), maxName)
	}
	if !utf8.ValidString(c.Name) {
		fault("site name %q is not UTF-8", c.Name)
	}
	if c.Carriers < 1 || c.Carriers > maxSlots {
		fault("%d carriers, not 1 to %d", c.Carriers, maxSlots)
	}
	if c.Streams < 1 || c.Streams > 1<<20 {
		fault("%d streams, not 1 to %d", c.Streams, 1<<20)
	}
	if c.Resume < 0 || c.Memory < 0 {
		fault("negative resume time or memory")
	}
	if len(c.Codecs) > maxCodecs || slices.ContainsFunc(c.Codecs, func(s string) bool { return len(s) > maxCodecName }) {
		fault("more than %d codecs, or one of more than %d bytes", maxCodecs, maxCodecName)
	}
	if c.Carrier != "" && c.Carrier != CarrierTLS && c.Carrier != CarrierDTLS && c.Carrier != CarrierAuto {
		fault("carrier %q is none of %s, %s and %s", c.Carrier, CarrierTLS, CarrierDTLS, CarrierAuto)
	}
	if c.Pad != 0 && (c.Pad < minPad || c.Pad > maxPad) {
		fault("padding to %d bytes, not 0 or %d to %d", c.Pad, minPad, maxPad)
	}
	if c.Insecure && (c.Carrier == CarrierDTLS || c.Carrier == CarrierAuto) {
		fault("in clear (Insecure) is for TCP, not for carrier %s", c.Carrier)
	}
	if c.Insecure && c.Transport != nil {
		fault("in clear (Insecure) is for TCP, not for a Transport of the caller's")
	}
	return errors.Join(errs...)
}

// checkPeers returns every fault of a list of peers.
func (c *Config) checkPeers(peers []Peer) error {
	var errs []error
	names, ids := map[string]bool{}, map[string]bool{}
	for _, p := range peers {
		fault := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("tunnel: peer %q: "+format, append([]any{p.Name}, args...)...))
		}
		if p.Name == "" {
			fault("it has no name")
		}
		if names[p.Name] {
			fault("the name is there twice")
		}
		names[p.Name] = true
		if p.Dial != "" {
			if _, _, err := net.SplitHostPort(p.Dial); err != nil {
				fault("dial %q: %w", p.Dial, err)
			}
		}
		if c.Insecure {
			continue
		}
		if u, err := url.Parse(p.ID); err != nil || u.Scheme != "spiffe" || u.Host == "" || u.Path == "" {
			fault("id %q is not like spiffe://domain/site", p.ID)
		}
		if ids[p.ID] {
			fault("id %q is there twice", p.ID)
		}
		ids[p.ID] = true
	}
	return errors.Join(errs...)
}

// newTransport returns the Transport that cfg asks for. It fails if the identity cannot be read.
func newTransport(cfg *Config) (Transport, error) {
	if cfg.Carrier == CarrierDTLS {
		return newDTLSTransport(cfg)
	}
	stream, err := newTLSTransport(cfg)
	if err != nil || cfg.Carrier != CarrierAuto {
		return stream, err
	}
	return &autoTransport{stream, &dtlsTransport{identity: stream.identity, now: cfg.Now, log: cfg.Logger, memory: cfg.Memory, options: cfg.Options}}, nil
}

// Listen returns a listener for the carriers of a Config with that Carrier, for Endpoint.Serve.
func Listen(carrier, address string) (net.Listener, error) {
	var t Transport = &tlsTransport{}
	switch carrier {
	case CarrierDTLS:
		t = &dtlsTransport{}
	case CarrierAuto:
		t = &autoTransport{&tlsTransport{}, &dtlsTransport{}}
	}
	return t.Listen(context.Background(), address)
}

// newTLSTransport returns the Transport that cfg asks for. It fails if the identity cannot be read.
func newTLSTransport(cfg *Config) (*tlsTransport, error) {
	t := &tlsTransport{dial: cfg.Dial, coalesce: cfg.Pad > 0, congestion: cfg.Congestion, options: cfg.Options, now: cfg.Now, log: cfg.Logger}
	if cfg.Insecure {
		return t, nil
	}
	t.identity = &identityStore{files: cfg.Identity, log: cfg.Logger}
	return t, t.identity.load()
}

// newDTLSTransport returns the Transport for carriers over datagrams. It fails if the identity cannot be read.
func newDTLSTransport(cfg *Config) (*dtlsTransport, error) {
	t := &dtlsTransport{identity: &identityStore{files: cfg.Identity, log: cfg.Logger}, now: cfg.Now, log: cfg.Logger, memory: cfg.Memory, options: cfg.Options}
	return t, t.identity.load()
}
