package nvflare

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// maxStreams bounds the streams of a direction that are remembered.
const maxStreams = 16

// streams has the streams of one direction.
type streams struct{ known lru.Cache[streamKey, *stream] }

// A streamKey names a stream.
type streamKey struct {
	origin, destination string
	number              int64
}

// of returns the stream of a frame in direction d, or nil if the stream is not of a kind that is read.
func (l *streams) of(d direction, h *header) *stream {
	what := h.channel + "/" + h.topic
	switch what {
	case tasks, updates, requests, downloads, streaming:
	default:
		return nil
	}
	k := streamKey{h.origin, h.destination, h.stream}
	x, ok := l.known.Use(k)
	if ok && x.size == int(h.size) && x.what == what && x.request == h.request { // else the cell has begun anew
		return x
	}
	x = &stream{subject: subject{d, what, h.request, int(h.size)}, origin: xxhash.Sum64String(h.origin), destination: xxhash.Sum64String(h.destination), from: cellName(h.origin), to: cellName(h.destination)}
	x.content.subject = &x.subject
	if what == downloads {
		x.announced = d.conn.facts.answered(fact{d.conn.scope, h.request})
	}
	l.known.Keep(k, x, maxStreams)
	return x
}

// held returns about how many bytes the streams hold.
func (l *streams) held() (n int) {
	for _, x := range l.known.FromNewest() {
		n += 512 + x.content.heldBytes() + cap(x.regions)*(96+maxLabel+maxLabel) + cap(x.gaps)*16
	}
	return n
}

// A stream is the state of one stream.
type stream struct {
	subject
	origin, destination uint64
	from, to            string        // the sites of the two cells, for people
	announced           *announcement // the announcement whose arrays this answer has; nil: not known, or no answer

	content content
	fed     int      // offset up to which content has seen the bytes, or was spared them
	skipped bool     // a frame has come before bytes that content had to see first
	ended   bool     // content has ended
	regions []region // the arrays that were found, in stream order
	gaps    []gap    // bytes before fed that have not come
}

// A gap is a run of bytes of a stream, by its offsets.
type gap struct{ from, to int }

// A region is the elements of one array in a stream.
type region struct {
	from, to int // offsets in the stream
	dtype    tensor.DType
	kind     npy.Container
	name     uint64 // hash of the array's name
	named    bool   // this side has announced the array
	exact    bool   // a difference of the array must lose nothing
	label    parser.Label
}

// Bounds on the number of a stream's entries.
const (
	maxRegions = 1 << 11
	maxGaps    = 1 << 8
)

// A part is the payload of one frame.
type part struct {
	from, to int  // offsets in the stream
	at       int  // offset of the next byte
	again    bool // the bytes have come before, or may have
	region   int  // index of the first region that ends after at
}

// begin begins a frame of n bytes at offset from.
func (x *stream) begin(from, n int) part {
	p := part{from: from, to: from + n, at: from}
	switch {
	case from < x.fed:
		p.again = !x.fill(p.from, p.to)
	case from > x.fed && !x.spare(from):
		x.skipped = true
	}
	p.again = p.again || x.skipped
	return p
}

// spare makes content go on at offset at, and notes the bytes up to there as a gap. If content must see some of these
// it returns false.
func (x *stream) spare(at int) bool {
	if len(x.gaps) >= maxGaps || !x.content.spare(at-x.fed) {
		return false
	}
	x.gaps = append(x.gaps, gap{x.fed, at})
	x.fed = at
	return true
}

// fill takes bytes out of the gaps, and reports whether they were in one. It also returns false if there would be too
// many gaps after it; the bytes then count as bytes that come again.
func (x *stream) fill(from, to int) bool {
	i := slices.IndexFunc(x.gaps, func(g gap) bool { return g.from <= from && to <= g.to })
	if i < 0 {
		return false
	}
	g := x.gaps[i]
	if g.from < from && to < g.to && len(x.gaps) >= maxGaps { // it would become two
		return false
	}
	x.gaps = slices.Delete(x.gaps, i, i+1)
	if g.from < from {
		x.gaps = append(x.gaps, gap{g.from, from})
	}
	if to < g.to {
		x.gaps = append(x.gaps, gap{to, g.to})
	}
	return true
}

// end ends a frame.
func (x *stream) end() {
	if x.fed == x.size && !x.ended {
		x.ended = true
		x.content.end()
		x.content = content{subject: &x.subject} // nothing is fed any more, so the memory can go
	}
}

// next classifies a prefix of b, the next bytes of a frame.
func (x *stream) next(p *part, b []byte, sure int) parser.Segment {
	if end := p.at + len(b); x.fed >= p.at && x.fed < end {
		for b := b[x.fed-p.at:]; len(b) > 0; {
			n, known := x.content.feed(b)
			if known {
				x.found(x.content.itemAt, &x.content.item)
			}
			b = b[n:]
		}
		x.fed = end
	}
	seg := parser.Segment{Len: len(b)}
	for p.region < len(x.regions) && x.regions[p.region].to <= p.at {
		p.region++
	}
	if p.region < len(x.regions) {
		r := &x.regions[p.region]
		from, to := r.within(p)
		if x.pieces && !x.whole(r, p) && from <= p.at {
			from += (p.at - from) / pieceLen * pieceLen
			to = min(to, from+pieceLen)
		}
		switch {
		case p.at >= from && p.at < to:
			seg.Len = min(len(b), to-p.at)
			seg.Tensor = x.tensor(r, p, from, to)
			if to-p.at <= sure { // else an HTTP/2 frame ends within the tensor, maybe within an element
				seg.Tensor.Hold = to - p.at
			}
		case p.at < from:
			seg.Len = min(len(b), from-p.at)
		default: // the elements that the next frame shares
			seg.Len = min(len(b), r.to-p.at)
		}
	}
	if p.region == len(x.regions) && x.unread(p) {
		seg = x.bytes(p, b, sure)
	}
	p.at += seg.Len
	return seg
}

// minBytes is the minimum length of a frame of which unread bytes are worth being tensors.
const minBytes = 4 << 10

// unread reports whether a frame, of a stream with files, came before the bytes that would tell its content.
func (x *stream) unread(p *part) bool {
	return x.hasFiles() && x.fed < p.from && p.to-p.from >= minBytes
}

// bytes classifies a prefix of b as a tensor of bytes that may come again, to other receivers or in a frame that is
// then understood.
func (x *stream) bytes(p *part, b []byte, sure int) parser.Segment {
	from := p.from + (p.at-p.from)/pieceLen*pieceLen
	to := min(p.to, from+pieceLen)
	seg := parser.Segment{Len: min(len(b), to-p.at)}
	cell := uint64(0)
	if x.side == parser.Client {
		cell = x.origin
	}
	base := mix.Words(baseOfBytes, x.conn.seed, uint64(x.size), uint64(from)<<32|uint64(to-from), cell)
	seg.Tensor = tensor.Tensor{
		Key:  mix.Words(keyOfArray, base, uint64(x.side), x.origin, x.destination),
		Role: tensor.Exact, Size: to - from, Off: p.at - from, Base: base, Why: tensor.DTypeUnknown, Repeats: true,
	}
	if to-p.at <= sure {
		seg.Tensor.Hold = to - p.at
	}
	return seg
}

// within returns the offsets at which the whole elements of r in a frame begin and end. There are none if to <= from.
func (r *region) within(p *part) (from, to int) {
	size := r.dtype.Size()
	from, to = max(r.from, p.from), min(r.to, p.to)
	from += (size - (from-r.from)%size) % size
	to -= (to - r.from) % size
	return from, to
}

// pieceLen is the length, in bytes, of the tensors into which elements are cut if the sender may wait within a frame.
// Over HTTP/2 a sender may have to wait for the receiver in the middle of any frame. A block that is under way then
// travels as it is, even if the receiver has its value already, so blocks should be short.
const pieceLen = 64 << 10

// mayLose reports whether the elements may lose something when they come for the first time.
func (r *region) mayLose() bool { return r.named && r.dtype.Float() && r.kind != npy.NoContainer }

// whole reports whether the elements of r in a frame are one tensor even if the sender may wait within the frame.
func (x *stream) whole(r *region, p *part) bool {
	return r.mayLose() && !p.again && (r.kind == npy.Safetensors || x.announced.role == tensor.Gradient)
}

// tensor returns the tensor of a region in a frame, at the frame's next byte.
func (x *stream) tensor(r *region, p *part, from, to int) tensor.Tensor {
	baseOf := func(cell uint64) uint64 {
		return mix.Words(baseOfArray, x.conn.seed, r.name, uint64(r.dtype), uint64(r.to-r.from), uint64(from-r.from)<<32|uint64(to-from), cell)
	}
	weights := r.named && x.announced.role == tensor.State
	base, model := baseOf(0), uint64(0)
	if x.side == parser.Client { // a client has bases of its own, and its weights answer the model that it was sent
		if base = baseOf(x.origin); weights {
			model = baseOf(0)
		}
	}
	t := tensor.Tensor{
		Key:  mix.Words(keyOfArray, base, uint64(x.side), x.origin, x.destination),
		Role: tensor.Exact, DType: r.dtype, Size: to - from, Off: p.at - from, Base: base, Model: model, Answered: weights && x.side == parser.Server, Proof: tensor.ByWire, Repeats: true,
		CRC32: r.kind == npy.Zip,
	}
	if r.mayLose() && !p.again {
		switch t.Role = x.announced.role; {
		case t.Role == tensor.Gradient && r.exact:
			t.Role = tensor.Exact
		case t.Role == tensor.Gradient:
			t.Proof = tensor.ByUpdate // the server adds a WEIGHT_DIFF to its weights
		}
	}
	return t
}

// found notes the arrays of a file that begins at offset at of the stream.
func (x *stream) found(at int, f *npy.Item) {
	for _, m := range f.Members() {
		if m.Size == 0 || len(x.regions) >= maxRegions {
			continue
		}
		r := region{from: at + m.Off, to: at + m.Off + m.Size, dtype: m.DType, kind: f.Kind(), name: xxhash.Sum64String(m.Name), label: parser.Label{From: x.from, To: x.to, Name: npy.Short(m.Name, maxLabel), Shape: m.Shape}}
		if a := x.announced; a != nil && a.from == x.side {
			if name, ok := a.names[m.Name]; ok {
				r.name, r.named, r.exact, r.label.Name = name.hash, true, name.statistic, name.text
			}
		}
		x.regions = append(x.regions, r)
	}
}
