package capture

import (
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/reassembly"

	"github.com/gradproxy/gradproxy/parser"
)

// A track follows one connection.
type track struct {
	id     int
	client netip.AddrPort
	sink   Sink
	sides  [2]half

	carries bool // bytes of it have come
}

// A half is the state of one direction.
type half struct {
	based bool   // base is set
	syn   bool   // base comes from a SYN
	base  uint32 // sequence number of the SYN, or the one before the first byte seen
	bytes uint32 // delivered, modulo 2^32
	gap   bool
	fin   bool   // seen
	reset bool   // seen
	end   uint32 // bytes before the FIN, else before the reset, modulo 2^32
}

func (c *track) sideOf(from netip.AddrPort) parser.Side {
	if from == c.client {
		return parser.Client
	}
	return parser.Server
}

// replacedBy reports whether p, a SYN, begins another connection between the same ends.
func (c *track) replacedBy(p *segment) bool {
	h := &c.sides[c.sideOf(p.from)]
	return p.from != c.client || h.based && h.base != p.tcp.Seq
}

// note takes note of a side's TCP header, and makes its sequence number relative to the side's base.
func (c *track) note(side parser.Side, tcp *layers.TCP) {
	h := &c.sides[side]
	if !h.based {
		h.based, h.syn, h.base = true, tcp.SYN, tcp.Seq
		if !tcp.SYN {
			h.base--
		}
	}
	tcp.Seq -= h.base
	if (tcp.FIN || tcp.RST) && !h.fin {
		h.end = tcp.Seq + uint32(len(tcp.Payload)) - 1
	}
	h.fin = h.fin || tcp.FIN
	h.reset = h.reset || tcp.RST
}

// complete reports whether no byte is missing.
func (c *track) complete() bool {
	if client, server := &c.sides[parser.Client], &c.sides[parser.Server]; client.syn && server.reset && !server.syn {
		return client.bytes|server.bytes == 0 // refused
	}
	reset := c.sides[0].reset || c.sides[1].reset
	for _, h := range c.sides {
		missing := int32(h.end-h.bytes) > 0
		if !h.syn || h.gap || !h.fin && !reset || (h.fin || h.reset) && missing {
			return false
		}
	}
	return true
}

// A packet names the connection and the side of a segment.
type packet struct {
	track *track
	side  parser.Side
}

func (*packet) GetCaptureInfo() gopacket.CaptureInfo { return gopacket.CaptureInfo{} }

// A stream receives both directions of a connection from reassembly.
type stream struct {
	track   *track
	first   parser.Side // of reassembly's "client to server"
	calling *bool       // the table's: a Sink
}

// Accept implements reassembly.Stream: it takes all segments, and lets a side without a SYN begin at its
// first byte.
func (s *stream) Accept(tcp *layers.TCP, _ gopacket.CaptureInfo, _ reassembly.TCPFlowDirection, next reassembly.Sequence,
	start *bool, ac reassembly.AssemblerContext) bool {
	p := ac.(*packet)
	if next < 0 && !p.track.sides[p.side].syn {
		*start = true
	}
	return true
}

// ReassembledSG implements reassembly.Stream.
func (s *stream) ReassembledSG(sg reassembly.ScatterGather, _ reassembly.AssemblerContext) {
	dir, _, _, skip := sg.Info()
	side := s.first
	if dir == reassembly.TCPDirServerToClient {
		side = 1 - side
	}
	h := &s.track.sides[side]
	*s.calling = true // stays set if the Sink panics
	if skip > 0 {
		h.gap = true
		h.bytes += uint32(skip)
		s.track.sink.Gap(side)
	}
	if n, _ := sg.Lengths(); n > 0 {
		h.bytes += uint32(n)
		s.track.sink.Data(side, sg.Fetch(n))
	}
	*s.calling = false
}

// ReassemblyComplete implements reassembly.Stream. The connection stays, so that late segments begin no other.
func (s *stream) ReassemblyComplete(reassembly.AssemblerContext) bool { return false }
