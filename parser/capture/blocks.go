package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Block types of pcapng (draft-ietf-opsawg-pcapng, section 10.1).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockPacket    = 6
)

// maxBlock bounds a block's length in bytes.
const maxBlock = 16 << 20

// maxPacket bounds a packet's length in bytes. The largest are packets that a network card will cut up (BIG TCP: 512
// KiB).
const maxPacket = 1 << 20

// blocks hands out a pcapng file block by block, after it has checked the lengths within: pcapgo allocates by them. It
// also notes each interface's link type, since pcapgo keeps only its low 8 bits.
type blocks struct {
	src   *bufio.Reader
	order binary.ByteOrder
	buf   []byte // the current block
	rest  []byte // the part of it that has not been read
	links []uint32
	snaps []uint32
}

// Read never reads beyond a block, so that links describes the section of the block being read.
func (g *blocks) Read(p []byte) (int, error) {
	if len(g.rest) == 0 {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// next reads a block whole.
func (g *blocks) next() error {
	head, err := g.src.Peek(12)
	if len(head) == 0 {
		return err
	}
	if len(head) < 12 {
		return io.ErrUnexpectedEOF
	}
	if binary.LittleEndian.Uint32(head) == blockSection {
		switch uint32(0x1a2b3c4d) {
		case binary.LittleEndian.Uint32(head[8:]):
			g.order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[8:]):
			g.order = binary.BigEndian
		default:
			return fmt.Errorf("byte-order magic %x", head[8:12])
		}
		g.links, g.snaps = g.links[:0], g.snaps[:0]
	} else if g.order == nil {
		return fmt.Errorf("block of type %x before the first section", head[:4])
	}
	n := g.order.Uint32(head[4:])
	if n < 12 || n > maxBlock || n%4 != 0 {
		return fmt.Errorf("block of %d bytes", n)
	}
	if cap(g.buf) < int(n) {
		g.buf = make([]byte, n)
	}
	g.buf = g.buf[:n]
	if _, err := io.ReadFull(g.src, g.buf); err != nil {
		return io.ErrUnexpectedEOF
	}
	g.rest = g.buf
	return g.check()
}

// check refuses a packet longer than its block.
func (g *blocks) check() error {
	typ, body := g.order.Uint32(g.buf), g.buf[8:len(g.buf)-4]
	need := map[uint32]int{blockSection: 16, blockInterface: 8, blockOldPacket: 20, blockSimple: 4, blockPacket: 20}[typ]
	if len(body) < need {
		return fmt.Errorf("block of type %d with %d bytes", typ, len(body))
	}
	var length uint32
	switch typ {
	case blockInterface:
		g.links = append(g.links, uint32(g.order.Uint16(body)))
		g.snaps = append(g.snaps, g.order.Uint32(body[4:]))
	case blockPacket, blockOldPacket:
		length = g.order.Uint32(body[12:])
	case blockSimple:
		length = g.order.Uint32(body)
		if len(g.snaps) > 0 && g.snaps[0] != 0 {
			length = min(length, g.snaps[0])
		}
	}
	if length > uint32(len(body)-need) || length > maxPacket {
		return fmt.Errorf("packet of %d bytes in a block of %d", length, len(g.buf))
	}
	if typ == blockInterface && g.order.Uint32(body[4:]) > maxPacket {
		g.order.PutUint32(body[4:], maxPacket) // pcapgo's buffer is as large as the largest packet may be
	}
	return nil
}

// link returns the LINKTYPE_ of interface i of the current section.
func (g *blocks) link(i int) uint32 {
	if i < 0 || i >= len(g.links) {
		return 0xffff
	}
	return g.links[i]
}
