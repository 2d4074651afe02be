// Package config reads gradproxy's configuration: one YAML file, strict, in which every mistake is found at once and
// reported with its line and the remedy.
//
// Only site and one peer are needed; the fields of Config name the other defaults.
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Config is a whole configuration file with defaults filled in and paths made relative to the file's folder.
type Config struct {
	File       string
	Site       string // this site's name
	Tunnel     Tunnel
	Peers      []Peer
	Intercept  Intercept
	Forward    []Forward
	Jobs       []Job
	Policy     []Rule
	Shadow     []string // candidates: codecs that are tried on a sample of the traffic; default none
	State      State
	Upgrade    Upgrade
	Admin      string        // "host:port", "unix:/path" or Off; default 127.0.0.1:9090
	OTLP       string        // URL to which metrics are sent by OpenTelemetry's protocol; "": nowhere
	Memory     int64         // bytes of tensor blocks held in each direction; default 256 MiB
	References int64         // bytes of values shared with each peer, each way; default 512 MiB, 0: none are
	Drain      time.Duration // how long SIGTERM waits for connections to end; default 30 s
	// RefusedRetry is how long a server that refuses connections is dialled again for a peer; default 30 s, 0: not at
	// all.
	RefusedRetry time.Duration

	lines map[string]int // of the keys of the whole file
	live  bool           // it is no file, but the answer of a peer's running proxy
}

// MayLose reports whether the configuration lets a tensor lose something, or names a candidate that does. Then the
// roles of tensors need proofs.
func (c *Config) MayLose() bool {
	return len(c.Policy) > 0 || len(c.Shadow) > 0 || slices.ContainsFunc(c.Peers, func(p Peer) bool { return len(p.Budget.Then) > 0 }) ||
		slices.ContainsFunc(c.Jobs, func(j Job) bool { return j.LossyAggregates || len(j.Budget.Then) > 0 })
}

// Off switches a listener off.
const Off = "off"

// Tunnel is this site's end of its tunnels.
type Tunnel struct {
	Listen     string        // host:port for peers' carriers, or Off; default [::]:7443
	Cert       string        // PEM files; defaults SITE.pem, SITE.key and ca.pem beside the configuration
	Key        string        //
	CA         string        //
	CRL        string        // revocation lists, PEM or DER; "": none
	Resume     time.Duration // how long connections outlive a lost tunnel; default 10 min
	Carrier    string        // tls (TLS over TCP), dtls (DTLS over UDP) or auto (either); "": auto where the memory for it is there, else tls
	Carriers   int           // connections to a peer that this side dials, 1 to 16; default 2
	Congestion string        // TCP congestion control; default "auto": bbr where the kernel has it, helped with bursts; "default": the kernel's
	Memory     int64         // bytes of buffers of all tunnels together; default 512 MiB
	Pad        int64         // bursts are padded to a multiple of so many bytes, 1 KiB to 256 KiB; default 0: bursts are not padded
	Insecure   bool          // in clear, on loopback only

	line int
	sets bool // Memory
}

// A Peer is another site.
type Peer struct {
	Name     string
	Dial     string           // host:port of its tunnel; "": it dials
	ID       string           // its SPIFFE id; default spiffe://DOMAIN/NAME with the domain of this site's certificate
	Networks []netip.Prefix   // addresses that are reached through it
	MayDial  []proxy.DialRule // addresses that it may make this side dial; default none
	Price    Price            // of bytes to it; default none
	Budget   Budget           // of bytes to it; default none

	line int
}

// Price is the price of bytes that a link carries away from this site. The zero Price is none.
type Price struct {
	EgressPerGB float64 // of 10^9 bytes
	Currency    string  // code of ISO 4217

	line int
}

// Budget bounds the bytes of a day that leave this site for a peer, or for a job. The zero Budget is none.
type Budget struct {
	GBPerDay float64  // 10^9 bytes
	Then     []string // codecs to which tensors move in order as it runs out; none: they do not

	line int
}

// Intercept says how jobs' connections come to the proxy.
type Intercept struct {
	Mode        Mode            // default ModeOff
	Ports       intercept.Ports // destination ports; default 1024-65535
	Refuse      bool            // on_death: refuse or hold
	Hold        bool            // on_death: hold; the default
	DirectFirst bool            // on_first: direct; default hold
	Gateway     bool            // also connections of other hosts that pass this one; default false
	Cgroup      string          // folder of the cgroup of ModeCgroup; "": one that is made for the command of gradproxy exec
	Probes      bool            // see the collectives that the jobs' processes call, where a rule may lose something; default true

	line int
	dies bool // the file has on_death
}

// A Mode is a way in which the proxy intercepts connections.
type Mode uint8

const (
	ModeOff      Mode = iota // it intercepts none; "off"
	ModeRedirect             // nf_tables redirects connections of this host to the proxy; "redirect"
	ModeTProxy               // a gateway takes connections of the hosts behind it, and keeps their addresses; "tproxy"
	ModeCgroup               // programs in the kernel redirect connections of a cgroup's processes to the proxy; "cgroup"
)

// A Forward is a listener with one target.
type Forward struct {
	Listen, Target netip.AddrPort
	Direct         bool // the target is behind no peer: bytes are passed on as they are

	line int
}

// A Job is a training job.
type Job struct {
	Name            string
	Networks        []netip.Prefix // of its hosts
	Ranks           int            // at most; 0: unknown
	Sums            parser.Sums
	LossyAggregates bool // aggregates: lossy
	Budget          Budget

	line int
}

// A Rule says how the tensors travel that match all of its fields. A field that is left out matches every tensor.
type Rule struct {
	Job, Protocol string
	Direction     string // from_client, from_server
	Roles         []tensor.Role
	DTypes        []tensor.DType
	MinBytes      int64 // of the whole tensor
	MaxBytes      int64 // 0: no limit
	Codec         string
	NoFeedback    bool // feedback: false
	FlushEvery    int  // values; 0: never

	line int
}

// State configures the residuals of error feedback, which must outlive the process.
type State struct {
	Dir    string // folder; "": it is not saved
	Memory int64  // bytes for residuals and last values of tensors that may lose something; default 1 GiB

	line int
	sets bool // Memory
}

// Upgrade says how another process takes this one's place.
type Upgrade struct {
	Socket string        // unix socket at which it asks; "": none can
	Within time.Duration // how long connections may take to come to rest; default 30 s
	Reset  bool          // late: reset: the ones that take longer than half of it are reset when this process takes over

	line int
}

func defaults(file string) *Config {
	return &Config{
		File:         file,
		Tunnel:       Tunnel{Listen: "[::]:7443", Resume: 10 * time.Minute, Carriers: 2, Memory: 512 << 20},
		Intercept:    Intercept{Ports: intercept.Ports{First: 1024, Last: 65535}, Probes: true, Refuse: true, Hold: true},
		State:        State{Memory: 1 << 30},
		Upgrade:      Upgrade{Within: 30 * time.Second},
		Admin:        "127.0.0.1:9090",
		Memory:       256 << 20,
		References:   512 << 20,
		Drain:        30 * time.Second,
		RefusedRetry: 30 * time.Second,
	}
}

// Networks returns the networks of all peers.
func (c *Config) Networks() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range c.Peers {
		all = append(all, p.Networks...)
	}
	return all
}

// Sets reports whether the file sets a size: memory, references, state.memory or tunnel.memory. A default may be made
// smaller.
func (c *Config) Sets(key string) bool {
	switch key {
	case "state.memory":
		return c.State.sets
	case "tunnel.memory":
		return c.Tunnel.sets
	}
	return c.lines[key] > 0
}

// Value returns t without where it stood in the file.
func (t Tunnel) Value() Tunnel { t.line, t.sets = 0, false; return t }

// Value returns i without where it stood in the file.
func (i Intercept) Value() Intercept { i.line, i.dies = 0, false; return i }

// Value returns s without where it stood in the file.
func (s State) Value() State { s.line, s.sets = 0, false; return s }

// Value returns u without where it stood in the file.
func (u Upgrade) Value() Upgrade { u.line = 0; return u }

// Value returns f without where it stood in the file.
func (f Forward) Value() Forward { f.line = 0; return f }
