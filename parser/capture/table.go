package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/reassembly"

	"github.com/gradproxy/gradproxy/parser"
)

// Bounds on the bytes, in pages of 1.9 KB, that wait for earlier bytes.
const (
	maxPagesPerConn = 4 << 10
	maxPages        = 16 << 10
)

// A table holds the connections of a capture and gives their segments to gopacket's reassembly. It does three things
// that reassembly leaves to its users or gets wrong: it tells a connection from an earlier one of the same ends, by the
// SYN; it counts sequence numbers from the SYN, since reassembly's comparison is off by one where they wrap; it knows
// where each side's bytes end.
type table struct {
	open    func(Conn) Sink
	asm     *reassembly.Assembler
	tracks  map[ends]*track
	all     []*track
	numbers map[[2]netip.Addr]int
	calling bool // a Sink
}

// ends names a connection, whichever way a segment goes.
type ends struct{ low, high netip.AddrPort }

func endsOf(a, b netip.AddrPort) ends {
	if b.Compare(a) < 0 {
		a, b = b, a
	}
	return ends{a, b}
}

func newTable(open func(Conn) Sink) *table {
	t := &table{open: open, tracks: map[ends]*track{}, numbers: map[[2]netip.Addr]int{}}
	t.asm = reassembly.NewAssembler(reassembly.NewStreamPool(t))
	t.asm.MaxBufferedPagesPerConnection = maxPagesPerConn
	t.asm.MaxBufferedPagesTotal = maxPages
	return t
}

// add takes the next segment of the capture.
func (t *table) add(p *segment) error {
	syn := p.tcp.SYN && !p.tcp.ACK
	key := endsOf(p.from, p.to)
	c := t.tracks[key]
	if c == nil || syn && c.replacedBy(p) {
		if !p.tcp.SYN && len(p.tcp.Payload) == 0 {
			return nil // the tail of a connection that the capture does not hold
		}
		c = t.begin(p)
		t.tracks[key] = c
	}
	if c.sink == nil {
		return nil
	}
	return t.assemble(c, p)
}

// begin opens a connection at its first segment.
func (t *table) begin(p *segment) *track {
	client, server := p.from, p.to
	if answered := p.tcp.SYN && p.tcp.ACK; answered || !p.tcp.SYN && p.from.Port() < p.to.Port() {
		client, server = server, client
	}
	pair := [2]netip.Addr{client.Addr(), server.Addr()}
	c := &track{id: len(t.all), client: client}
	c.sink = t.open(Conn{Client: client, Server: server, Number: t.numbers[pair]})
	t.numbers[pair]++
	t.all = append(t.all, c)
	return c
}

// assemble gives p to reassembly. Before a connection's first bytes that gets nothing, since it takes kilobytes for
// each connection, and a capture may have a great many that carry none; the SYNs come to it with them.
func (t *table) assemble(c *track, p *segment) error {
	side := c.sideOf(p.from)
	c.note(side, p.tcp)
	if !c.carries {
		if len(p.tcp.Payload) == 0 {
			return nil
		}
		c.carries = true
		var ports [2]layers.TCPPort
		ports[side], ports[1-side] = p.tcp.SrcPort, p.tcp.DstPort
		for s := range c.sides {
			if from := parser.Side(s); c.sides[s].syn && !(from == side && p.tcp.SYN) {
				if err := t.give(c, from, firstSegment(ports[from], ports[1-from])); err != nil {
					return err
				}
			}
		}
	}
	return t.give(c, side, p.tcp)
}

// firstSegment returns a SYN without bytes whose number is 0. reassembly tells connections apart by ports that only
// decoding sets.
func firstSegment(from, to layers.TCPPort) *layers.TCP {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, uint16(from))
	binary.BigEndian.PutUint16(b[2:], uint16(to))
	b[12], b[13] = 5<<4, 2 // words of the header, SYN
	tcp := &layers.TCP{}
	if err := tcp.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
		panic(err) // the header is whole
	}
	return tcp
}

// give gives a segment to reassembly, under a key of the connection's own.
func (t *table) give(c *track, side parser.Side, tcp *layers.TCP) error {
	var from, to [9]byte
	binary.BigEndian.PutUint64(from[:], uint64(c.id))
	to, from[8], to[8] = from, byte(side), byte(1-side)
	flow := gopacket.NewFlow(layers.EndpointIPv4, from[:], to[:])
	tcp.SrcPort, tcp.DstPort = 0, 0
	return t.protect(func() { t.asm.AssembleWithContext(flow, tcp, &packet{track: c, side: side}) })
}

// protect calls f and makes an error of gopacket's panic, which is the capture's fault. A Sink's panic goes on.
func (t *table) protect(f func()) (err error) {
	t.calling = false
	defer func() {
		if !t.calling {
			if p := recover(); p != nil {
				err = fmt.Errorf("reassembly: %v", p)
			}
		}
	}()
	f()
	return nil
}

// New implements reassembly.StreamFactory.
func (t *table) New(_, _ gopacket.Flow, _ *layers.TCP, ac reassembly.AssemblerContext) reassembly.Stream {
	p := ac.(*packet)
	return &stream{track: p.track, first: p.side, calling: &t.calling}
}

// close flushes the waiting bytes, and closes every connection.
func (t *table) close() {
	_ = t.protect(func() { t.asm.FlushAll() }) // bytes that it could not flush are missing
	for _, c := range t.all {
		if c.sink != nil {
			c.sink.Close(c.complete())
		}
	}
}
