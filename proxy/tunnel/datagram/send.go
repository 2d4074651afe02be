package datagram

const (
	minPart = 64 // bytes of a fragment, unless it ends a record or a packet
	maxHead = 32 // bytes of a fragment's frame beside its data
)

// maxAhead is how many records may be begun behind the first one that has not arrived whole.
const maxAhead = 1 << 14

// An outRecord is a record that has not arrived whole.
type outRecord struct {
	number uint64
	order  Order
	fence  *outRecord // the last fence before it
	data   []byte
	sent   int // bytes that have left at least once
	acked  spans
	done   bool // acknowledged whole
}

// A part is a piece of a record in a packet.
type part struct {
	record *outRecord
	offset int
	length int
}

// A sending is the records on their way to the other end.
type sending struct {
	numbered uint64       // number of the newest record
	unsent   int          // bytes that have never left
	records  []*outRecord // from the oldest that is not done
	begun    int          // index of the first record that has not left whole
	again    []part       // lost ones
	fence    *outRecord   // the newest fence
	charged  uint64       // lengths of all records that were begun
	limit    uint64       // that charged must not pass
	kept     int          // bytes of the begun records that have not arrived whole
	window   int          // that kept must not pass, though the other end allows more
	ended    bool
	free     func(record []byte) // takes the records that have arrived; nil: nobody does
}

// queue appends a record, which it retains.
func (s *sending) queue(data []byte, order Order) {
	s.numbered++
	r := &outRecord{number: s.numbered, order: order, data: data, fence: s.fence}
	if r.fence != nil && r.fence.done {
		r.fence = nil
	}
	if order >= Fence {
		s.fence = r
	}
	s.ended = s.ended || order == End
	s.unsent += len(data)
	s.records = append(s.records, r)
}

// waiting reports whether something can leave: a lost part, or a record within the limits.
func (s *sending) waiting() bool {
	s.skipDone()
	return len(s.again) > 0 || s.mayBegin()
}

func (s *sending) skipDone() {
	for len(s.again) > 0 && s.again[0].arrived() {
		s.again = s.again[1:]
	}
}

func (p *part) arrived() bool {
	return p.record.done || p.record.acked.has(uint64(p.offset), uint64(p.offset+p.length))
}

func (s *sending) mayBegin() bool {
	if s.begun >= len(s.records) {
		return false
	}
	r := s.records[s.begun]
	return r.sent > 0 || s.charged+uint64(len(r.data)) <= s.limit && s.kept+len(r.data) <= s.window && r.number < s.records[0].number+maxAhead
}

// fill appends fragments to dst, which may grow to size bytes, and their parts to parts. rest: nothing is to follow in
// the packet once they fill it.
func (s *sending) fill(dst []byte, size int, parts []part, rest bool) ([]byte, []part) {
	for {
		s.skipDone()
		var p part
		lost := len(s.again) > 0
		switch {
		case lost:
			p = s.again[0]
		case s.mayBegin():
			r := s.records[s.begun]
			p = part{record: r, offset: r.sent, length: len(r.data) - r.sent}
		default:
			return dst, parts
		}
		f := p.fragment()
		room := size - len(dst) - f.head()
		if room <= 0 || room < minPart && p.length > room {
			return dst, parts
		}
		if f.rest = rest && p.length >= room+maxLengthLen; f.rest {
			room += maxLengthLen
		}
		p.length = min(p.length, room)
		f.data = p.record.data[p.offset : p.offset+p.length]
		dst = f.append(dst)
		parts = append(parts, p)
		if lost {
			if q := &s.again[0]; q.length == p.length {
				s.again = s.again[1:]
			} else {
				q.offset, q.length = q.offset+p.length, q.length-p.length
			}
			continue
		}
		r := p.record
		if r.sent == 0 {
			s.charged += uint64(len(r.data))
			s.kept += len(r.data)
		}
		r.sent += p.length
		s.unsent -= p.length
		if r.sent == len(r.data) {
			s.begun++
		}
	}
}

func (p *part) fragment() fragment {
	r := p.record
	f := fragment{record: r.number, order: r.order, total: len(r.data), offset: p.offset}
	if r.fence != nil {
		if r.fence.done {
			r.fence = nil
		} else {
			f.fence = r.fence.number
		}
	}
	return f
}

// arrived notes that a part was acknowledged.
func (s *sending) arrived(p part) {
	r := p.record
	if r.done {
		return
	}
	r.acked.add(uint64(p.offset), uint64(p.offset+p.length))
	if !r.acked.has(0, uint64(len(r.data))) {
		return
	}
	s.kept -= len(r.data)
	if s.free != nil {
		s.free(r.data)
	}
	r.done, r.data, r.acked, r.fence = true, nil, nil, nil
	for len(s.records) > 0 && s.records[0].done {
		s.records[0] = nil
		s.records = s.records[1:]
		s.begun--
	}
}

// lost has a part leave again.
func (s *sending) lost(p part) {
	if !p.arrived() {
		s.again = append(s.again, p)
	}
}

// oldest returns the parts of the oldest records that have left and not arrived, for a probe.
func (s *sending) oldest() (p part, ok bool) {
	for _, r := range s.records[:s.begun] {
		if !r.done {
			from := 0
			if len(r.acked) > 0 && r.acked[0].first == 0 {
				from = int(r.acked[0].end)
			}
			return part{record: r, offset: from, length: len(r.data) - from}, true
		}
	}
	return p, false
}
