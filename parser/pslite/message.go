package pslite

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// begin takes note of a frame's header.
func (s *stream) begin(header []byte) {
	size, ok := frameSize(header)
	if !ok {
		s.fail("a frame with flags %#x and a size of %x", header[0], header[1:])
		return
	}
	s.frame = frame{part: s.next, more: header[0]&flagMore != 0, size: size, rest: size}
	switch {
	case header[0]&flagCommand != 0:
		s.beginCommand()
	case !s.ready:
		s.fail("a message before READY")
	default:
		s.beginPart()
	}
	if s.err == nil && s.state != payload {
		if s.state = body; size == 0 {
			s.end(nil)
		}
	}
}

// first returns the part that begins this side's messages.
func (s *stream) first() part {
	if s.dealer {
		return partMeta
	}
	return partName
}

// beginCommand begins a command: commands stand between messages.
func (s *stream) beginCommand() {
	switch {
	case s.frame.more || s.ready && s.next != s.first():
		s.fail("a command within a message")
	case !s.ready && s.frame.size > maxHeld:
		s.fail("a READY of %d bytes", s.frame.size)
	}
	s.frame.part = partCommand
}

// beginPart begins a frame of a message.
func (s *stream) beginPart() {
	size, m := s.frame.size, &s.msg
	switch s.next {
	case partName:
		if !s.frame.more || size > maxName {
			s.fail("no server's name before an answer")
		}
	case partMeta:
		if size > maxHeld {
			s.fail("a meta of %d bytes", size)
		}
	case partKeys:
		m.keys.begin()
		if s.expect(true); s.err == nil && s.conn.isList(&m.meta, size) {
			s.beginPayload(s.conn.indexOf(s.route(), &m.meta, &m.keys, size))
			return
		}
		s.frame.lead = lead(&m.meta, size)
	case partVals:
		if s.expect(m.meta.frames > 2); s.err == nil {
			s.beginVals()
		}
	case partLens:
		m.lens = lens{}
		if s.expect(false); s.err == nil {
			s.beginPayload(s.conn.lengthsOf(s.route(), &m.meta, &m.keys, size))
		}
	}
}

// expect fails where a message ends early or goes on too long.
func (s *stream) expect(more bool) {
	if s.frame.more != more {
		s.fail("a message of other than %d frames of data", s.msg.meta.frames)
	}
}

// beginVals begins the payload.
func (s *stream) beginVals() {
	m := &s.msg
	m.vals = s.conn.value(s.side, s.route(), &m.meta, &m.keys, s.frame.size)
	s.beginPayload(m.vals)
}

// beginPayload begins a tensor, if it is one, that goes on to the end of the frame.
func (s *stream) beginPayload(t tensor.Tensor) {
	if t.Size > 0 {
		s.state, s.value = payload, t
	}
}

// after returns the part that follows a part of a message.
func (s *stream) after(p part) part {
	switch frames := s.msg.meta.frames; {
	case p == partMeta && frames == 0, p == partVals && frames == 2, p == partLens:
		return s.first()
	}
	return p + 1
}

// end takes note of the end of a frame. whole is its body if that was collected.
func (s *stream) end(whole []byte) {
	s.state = header
	switch s.frame.part {
	case partCommand:
		if !s.ready {
			s.endReady(whole)
		}
		return
	case partName:
		if s.msg.sender = nodeID(whole); !server(s.msg.sender) {
			s.fail("a message of a node %.12q", whole)
			return
		}
	case partMeta:
		if s.endMeta(whole); s.err != nil {
			return
		}
	case partKeys:
		s.conn.endKeys(s.route(), &s.msg.meta, &s.msg.keys)
	case partLens:
		if m := &s.msg; m.vals.Size > 0 && !m.lens.agrees(m.vals.Size, m.vals.DType.Size()) {
			s.fail("lengths that contradict %d bytes of values", m.vals.Size)
			s.err = fmt.Errorf("%w: %w", s.err, parser.ErrReset) // the values have a role already
			return
		}
	}
	s.next = s.after(s.frame.part)
}

// endReady takes note of READY, or of an ERROR in its place.
func (s *stream) endReady(body []byte) {
	name, data := commandName(body)
	if name == "ERROR" {
		return
	}
	r, ok := parseReady(data)
	if name != "READY" || !ok {
		s.fail("a handshake of another application's")
		return
	}
	s.ready, s.dealer = true, r.dealer
	s.next = s.first()
	s.msg.sender, s.named = r.id, r.id != 0
	if r.dealer {
		f := s.conn.facts
		f.mu.Lock()
		s.conn.dealer = r.id
		f.mu.Unlock()
	}
}

// endMeta takes note of a message by its meta.
func (s *stream) endMeta(body []byte) {
	m, ok := parseMeta(body)
	switch {
	case !ok:
		s.fail("a meta of %d bytes that is neither of ps-lite's nor of BytePS's", len(body))
		return
	}
	s.msg.meta = m
	if s.expect(m.frames > 0); s.err != nil {
		return
	}
	s.count.messages++
	if m.frames > 0 {
		s.count.payloads++
		return
	}
	s.conn.observe(s.side, s.route(), &s.msg.meta)
	s.msg.meta.nodes = nil
}

// parseMeta reads a meta in either dialect. It returns nodes only if they can be a table.
func parseMeta(b []byte) (m meta, ok bool) {
	if m, ok = parseProto(b); !ok {
		m, ok = parsePacked(b)
	}
	return m, ok && m.sound()
}

// route returns the route of the current message.
func (s *stream) route() route {
	if s.dealer {
		return route{from: s.msg.sender, listener: s.conn.address(1 - s.side)}
	}
	return route{from: s.msg.sender, listener: s.conn.address(s.side), back: true}
}

var _ parser.Counter = (*stream)(nil)
