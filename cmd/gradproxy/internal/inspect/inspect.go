// Package inspect reports on a packet capture: the connections and their protocols, how many of their bytes are tensors
// of which role, and how small they would travel.
//
// It runs the same code as two proxies, one beside each end of every connection: the parsers, the content check before
// lossy coding, and for each policy of interest the proxy's own sender. All connections of a capture are one job.
package inspect

import (
	"cmp"
	"fmt"
	"io"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/proxy/estimate"
)

// A Config has the user's knowledge of the job. The zero Config knows nothing, and is ready for use.
type Config struct {
	Sums  parser.Sums
	Ranks int // at most, in a group; 0: unknown
	// Policies are the policies to cost, as CheckPolicy takes them; Lossless is always one.
	Policies []string
	// MaxCopies bounds the memory for the last values of tensors, in bytes, once and again for each policy; 0 stands
	// for 1 GiB. Tensors beyond it are Unknown, since nothing can be compared.
	MaxCopies int
	// WhatIf asks for the job's time and price on links; nil: nobody does. Its Sites also tell which hosts share a
	// proxy.
	WhatIf *Question
}

// job names the job that all connections of a capture belong to.
const job = "capture"

// Read reads a capture. With an error, the Report tells of the capture up to there; it is nil if c is wrong.
func Read(r io.Reader, c Config) (report *Report, err error) {
	c.MaxCopies = cmp.Or(c.MaxCopies, 1<<30)
	costings, err := newCostings(c)
	defer func() {
		for _, c := range costings {
			c.trial.Close()
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	x := newInspector(c)
	x.costings = costings
	err = capture.Read(r, x.open)
	report = &Report{Connections: []Connection{}}
	for _, w := range x.wires {
		w.finish()
		report.Connections = append(report.Connections, w.report())
	}
	report.Hosts = hostPairs(report.Connections)
	report.Methods = x.methods()
	for _, c := range x.costings {
		report.Policies = append(report.Policies, c.end())
	}
	if c.WhatIf != nil {
		report.WhatIf = x.whatIf(c.WhatIf, report.Connections)
	}
	return report, cmp.Or(err, x.err)
}

// An inspector reads one capture.
type inspector struct {
	config   Config
	near     [2][]parser.Protocol // of the proxies beside clients, and beside servers
	wires    []*wire
	tensors  *tensors
	costings []*costing            // lossless first
	each     func(Value)           // is told of every value; may be nil
	bursts   map[[2]string]*bursts // between two sites
	err      error                 // a defect of the program
}

// bursts counts how often one of two sites began to send after the other.
type bursts struct {
	from  string // the site that sent the last bytes
	count int
}

func newInspector(c Config) *inspector {
	return &inspector{
		config:  c,
		near:    [2][]parser.Protocol{all.Protocols(), all.Protocols()},
		bursts:  map[[2]string]*bursts{},
		tensors: &tensors{spare: c.MaxCopies, last: map[blockName]*block{}},
	}
}

// open begins a connection.
func (x *inspector) open(c capture.Conn) capture.Sink {
	w := &wire{inspector: x, conn: c}
	client, server := c.Client.Addr(), c.Server.Addr()
	if w.sites = [2]string{client.String(), server.String()}; x.config.WhatIf != nil {
		w.sites = x.config.WhatIf.sitesOf(client, server)
	}
	x.wires = append(x.wires, w)
	return w
}

// A wire is one connection, read by the parsers of every protocol that has not found it foreign.
type wire struct {
	inspector *inspector
	conn      capture.Conn
	complete  bool
	bytes     [2]int
	sites     [2]string // of client and server: their hosts, unless the user has named sites
	heads     [2][]byte // the first bytes of each side
	last      parser.Side
	turns     int     // how often the bytes changed direction
	gaps      [2]bool // a side had a gap
	readers   []*reader
	finished  bool
	known     *reader // of the connection's protocol; nil: unknown
	sizes     [2][]estimate.Sizes
}

// Data implements capture.Sink.
func (w *wire) Data(from parser.Side, b []byte) {
	if w.bytes == [2]int{} {
		w.begin()
	}
	w.note(from, b)
	w.bytes[from] += len(b)
	left := w.readers[:0]
	for _, r := range w.readers {
		if r.data(from, b) {
			left = append(left, r)
		} else {
			w.close(r)
		}
	}
	clear(w.readers[len(left):])
	w.readers = left
}

// note keeps the first bytes of a side, and counts turns.
func (w *wire) note(from parser.Side, b []byte) {
	if room := headLen - len(w.heads[from]); room > 0 {
		w.heads[from] = append(w.heads[from], b[:min(room, len(b))]...)
	}
	if w.last != from {
		w.last = from
		w.turns++
	}
	if w.local() {
		return
	}
	pair := [2]string{min(w.sites[0], w.sites[1]), max(w.sites[0], w.sites[1])}
	if b := w.inspector.bursts[pair]; b == nil {
		w.inspector.bursts[pair] = &bursts{w.sites[from], 1}
	} else if b.from != w.sites[from] {
		b.from = w.sites[from]
		b.count++
	}
}

// local reports whether both ends are at one site, so that no proxy would carry the connection.
func (w *wire) local() bool { return w.inspector.config.WhatIf != nil && w.sites[0] == w.sites[1] }

// begin makes the readers. That waits for data: a capture may hold a great many connections that were never answered.
func (w *wire) begin() {
	x := w.inspector
	for i := range x.near[0] {
		p := x.near[0][i]
		r := &reader{protocol: p.String(), sites: w.sites, tensors: x.tensors, costings: w.costings(), each: x.each, ended: w.gaps}
		for own := range x.near {
			from, to := x.near[own][i].New(parser.Conn{
				Job: job, Client: w.conn.Client, Server: w.conn.Server, Number: w.conn.Number,
				Ranks: x.config.Ranks, Sums: x.config.Sums, Own: parser.Side(own),
			})
			r.parsers[own] = [2]parser.Parser{from, to}
		}
		for side := range r.tallies {
			r.tallies[side].hash = newHash()
		}
		w.readers = append(w.readers, r)
	}
}

// costings returns the policies to try on the connection.
func (w *wire) costings() []*costing {
	if w.local() {
		return nil
	}
	return w.inspector.costings
}

// Gap implements capture.Sink: the bytes after a gap cannot be classified.
func (w *wire) Gap(from parser.Side) {
	w.gaps[from] = true
	for _, r := range w.readers {
		r.ended[from] = true
	}
}

// Close implements capture.Sink.
func (w *wire) Close(complete bool) {
	w.complete = complete
	w.finish()
}

// finish settles the protocol, the first that recognized the connection, and ends the flows: no bytes come any more.
func (w *wire) finish() {
	if w.finished {
		return
	}
	w.finished = true
	for _, r := range w.readers {
		sizes := w.close(r)
		if w.known == nil && (r.known(parser.Client) || r.known(parser.Server)) {
			w.known, w.sizes = r, sizes
		}
	}
}

func (w *wire) close(r *reader) [2][]estimate.Sizes {
	sizes, err := r.close()
	w.inspector.err = cmp.Or(w.inspector.err, err)
	return sizes
}

// report sums up the connection.
func (w *wire) report() Connection {
	c := Connection{Client: w.conn.Client.String(), Server: w.conn.Server.String(), Protocol: unknown, Complete: w.complete}
	if w.known != nil {
		c.Protocol = w.known.protocol
	} else {
		c.Name = nameOf(w.heads[parser.Client], w.heads[parser.Server], w.conn.Server.Port())
	}
	c.FromClient, c.FromServer = w.direction(parser.Client), w.direction(parser.Server)
	return c
}

func (w *wire) direction(side parser.Side) Direction {
	d := Direction{Bytes: w.bytes[side]}
	for i, c := range w.inspector.costings {
		var sizes estimate.Sizes
		if i < len(w.sizes[side]) {
			sizes = w.sizes[side][i]
		}
		bytes := c.add(d.Bytes, sizes)
		if i == 0 {
			d.Lossless = bytes
		}
		if !w.local() {
			c.traffic.add(w.sites[side], w.sites[1-side], bytes)
		}
	}
	if w.known == nil {
		d.PayloadSHA256 = noPayload
		return d
	}
	t := &w.known.tallies[side]
	d.Messages, d.PayloadMessages = counts(w.known.parsers[side][side])
	d.PayloadBytes, d.PayloadSHA256, d.RoleBytes = t.bytes, hexSum(t.hash), t.roles
	return d
}

func counts(p parser.Parser) (all, payloads int) {
	if c, ok := p.(parser.Counter); ok {
		return c.Messages()
	}
	return 0, 0
}
