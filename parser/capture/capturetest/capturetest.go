// Package capturetest writes packet captures, for tests.
package capturetest

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
)

// A Conn is a connection to write.
type Conn struct{ Client, Server netip.AddrPort } // IPv4

// A Chunk is bytes that passed on a connection.
type Chunk struct {
	Conn  int
	From  parser.Side
	Bytes []byte
}

// TCP flags (RFC 9293, 3.1).
const (
	fin = 1
	syn = 2
	ack = 16
)

// maxSegment is the payload of the largest segments written, in bytes; the loopback interface has such.
const maxSegment = 60_000

// Write returns a capture (classic pcap, raw IP) of connections from SYN to FIN that carry the chunks in order.
func Write(conns []Conn, chunks []Chunk) []byte {
	w := &writer{conns: conns, next: make([][2]uint32, len(conns))}
	for _, x := range []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 1 << 18, 101} {
		w.out.Write(binary.LittleEndian.AppendUint32(nil, x))
	}
	for i := range conns {
		w.packet(i, parser.Client, syn, nil)
		w.packet(i, parser.Server, syn|ack, nil)
	}
	for _, c := range chunks {
		for rest := c.Bytes; len(rest) > 0; {
			n := min(len(rest), maxSegment)
			w.packet(c.Conn, c.From, ack, rest[:n])
			rest = rest[n:]
		}
	}
	for i := range conns {
		w.packet(i, parser.Client, fin|ack, nil)
		w.packet(i, parser.Server, fin|ack, nil)
	}
	return w.out.Bytes()
}

type writer struct {
	out   bytes.Buffer
	conns []Conn
	next  [][2]uint32 // sequence numbers
	count uint32
}

// packet writes one segment. Checksums are 0, as where a network card is to fill them in.
func (w *writer) packet(conn int, from parser.Side, flags byte, data []byte) {
	a, b := w.conns[conn].Client, w.conns[conn].Server
	if from == parser.Server {
		a, b = b, a
	}
	seq := &w.next[conn][from]
	p := []byte{0x45, 0}
	p = binary.BigEndian.AppendUint16(p, uint16(40+len(data)))
	p = append(p, 0, 0, 0x40, 0, 64, 6, 0, 0)
	p = append(append(p, a.Addr().AsSlice()...), b.Addr().AsSlice()...)
	p = binary.BigEndian.AppendUint16(p, a.Port())
	p = binary.BigEndian.AppendUint16(p, b.Port())
	p = binary.BigEndian.AppendUint32(p, *seq)
	p = binary.BigEndian.AppendUint32(p, w.next[conn][1-from])
	p = append(p, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	p = append(p, data...)
	*seq += uint32(len(data))
	if flags&(syn|fin) != 0 {
		*seq++
	}
	w.count++
	for _, x := range []uint32{w.count / 1000, w.count % 1000 * 1000, uint32(len(p)), uint32(len(p))} {
		w.out.Write(binary.LittleEndian.AppendUint32(nil, x))
	}
	w.out.Write(p)
}
