package nvflare

import "github.com/gradproxy/gradproxy/parser/internal/msgscan"

// A header has the values that matter of the map before a frame's payload.
type header struct {
	origin, destination string
	channel, topic      string // of the stream: sm__ch, sm__tp
	request             string // sm__ri
	encoding            string // sm__pe
	stream              int64  // sm__id
	offset, size        int64  // sm__os, sm__sz
	keys                int    // how many of stream, offset and size the map has
}

// parseHeader reads a header. It returns false if b is not a map, or if the frame is not part of a stream that can be
// read.
func parseHeader(b []byte) (h header, ok bool) {
	var s msgscan.Scanner
	r := &headerReader{header: &h, scan: &s}
	s.Begin(len(b), r)
	n := s.Next(b)
	ok = n == len(b) && r.whole(b) && h.keys == 3 && h.offset >= 0 && h.size > 0 && h.offset < h.size && h.size <= maxStream
	return h, ok && h.encoding == "fobs" && !r.encrypted
}

// maxStream is the maximum length, in bytes, of a stream that is read.
const maxStream = 1 << 40

// A headerReader takes the values of a header.
type headerReader struct {
	header    *header
	scan      *msgscan.Scanner
	encrypted bool
}

// whole reports whether b began a map.
func (r *headerReader) whole(b []byte) bool {
	return len(b) > 0 && (b[0]&0xf0 == 0x80 || b[0] == 0xde || b[0] == 0xdf)
}

// Text implements msgscan.Handler.
func (r *headerReader) Text(b []byte) {
	if r.scan.Depth() != 1 {
		return
	}
	h := r.header
	switch string(r.scan.Key(0)) {
	case "cn__origin":
		h.origin = string(b)
	case "cn__destination":
		h.destination = string(b)
	case "sm__ch":
		h.channel = string(b)
	case "sm__tp":
		h.topic = string(b)
	case "sm__ri":
		h.request = string(b)
	case "sm__pe":
		h.encoding = string(b)
	}
}

// Number implements msgscan.Handler.
func (r *headerReader) Number(v int64) {
	if r.scan.Depth() != 1 {
		return
	}
	h := r.header
	switch string(r.scan.Key(0)) {
	case "sm__id":
		h.stream = v
	case "sm__os":
		h.offset = v
	case "sm__sz":
		h.size = v
	default:
		return
	}
	h.keys++
}

// Bool implements msgscan.Handler.
func (r *headerReader) Bool(v bool) {
	if r.scan.Depth() == 1 && v {
		switch string(r.scan.Key(0)) {
		case "cn__secure", "cn__encrypted":
			r.encrypted = true
		}
	}
}

// Bin implements msgscan.Handler.
func (*headerReader) Bin(int) bool { return false }
