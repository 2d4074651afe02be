package capture

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/google/gopacket"
	"github.com/google/gopacket/pcapgo"
)

var errNoCapture = errors.New("capture: neither pcap nor pcapng, gzipped or not")

// A source reads a capture's packets and finds the TCP segments in them.
type source struct {
	read func() ([]byte, gopacket.CaptureInfo, error)
	link func(gopacket.CaptureInfo) uint32 // LINKTYPE_ of a packet
	dec  decoder
}

// newSource finds out the format of r by its first bytes.
func newSource(r io.Reader) (*source, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("capture: gzip: %w", err)
		}
		b = bufio.NewReaderSize(z, 1<<16)
	}
	head, err := b.Peek(24)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("capture: %w", err)
	}
	if len(head) < 24 {
		return nil, errNoCapture
	}
	switch binary.LittleEndian.Uint32(head) {
	case 0xa1b2c3d4, 0xa1b23c4d:
		return pcap(b, binary.LittleEndian.Uint32(head[20:]))
	case 0xd4c3b2a1, 0x4d3cb2a1:
		return pcap(b, binary.BigEndian.Uint32(head[20:]))
	case blockSection:
		return pcapng(b)
	}
	return nil, errNoCapture
}

// pcap reads the classic format (draft-ietf-opsawg-pcap). The upper bits of its link field are not the link's type.
func pcap(b *bufio.Reader, link uint32) (*source, error) {
	r, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	r.SetSnaplen(maxPacket) // whatever the file says: gopacket allocates that much
	link &= 0xffff
	return &source{
		read: r.ZeroCopyReadPacketData,
		link: func(gopacket.CaptureInfo) uint32 { return link },
	}, nil
}

// pcapng reads the block format (draft-ietf-opsawg-pcapng).
func pcapng(b *bufio.Reader) (*source, error) {
	g := &blocks{src: b}
	opt := pcapgo.DefaultNgReaderOptions
	opt.WantMixedLinkType = true
	opt.SkipUnknownVersion = true
	var r *pcapgo.NgReader
	err := recovered(func() (err error) {
		r, err = pcapgo.NewNgReader(g, opt)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture: pcapng: %w", err)
	}
	return &source{
		read: func() (data []byte, ci gopacket.CaptureInfo, err error) {
			err = recovered(func() (err error) {
				data, ci, err = r.ZeroCopyReadPacketData()
				return err
			})
			return data, ci, err
		},
		link: func(ci gopacket.CaptureInfo) uint32 { return g.link(ci.InterfaceIndex) },
	}, nil
}

// next returns the next packet's TCP segment, nil if it has none. It is valid until the next call.
func (s *source) next() (*segment, error) {
	data, ci, err := s.read()
	if err != nil {
		return nil, err
	}
	return s.dec.decode(s.link(ci), data)
}

// recovered calls a function of gopacket and makes an error of its panic.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed: %v", p)
		}
	}()
	return f()
}
