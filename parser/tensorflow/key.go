package tensorflow

import (
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// An edge is a rendezvous key, which names a tensor on its way between two devices
// (tensorflow/core/framework/rendezvous.cc).
type edge struct {
	from, to    string // devices
	incarnation string // of the sending device: 16 hexadecimal digits
	name        string
	frame       string // and iteration
}

// parseEdge splits a rendezvous key. It reports false if the text is none.
func parseEdge(key string) (e edge, ok bool) {
	parts := strings.Split(key, ";")
	if len(parts) != 5 {
		return e, false
	}
	e = edge{from: parts[0], incarnation: parts[1], to: parts[2], name: parts[3], frame: parts[4]}
	return e, e.from != "" && e.to != "" && e.name != ""
}

// rendezvous is the part of an edge by which graphs name it.
func (e *edge) rendezvous() rendezvous { return rendezvous{e.from, e.to, e.name} }

// key returns the Key of the tensor on an edge; function is the hash of the name of the function whose edge it is, 0 if
// that is not known, or it is a graph's. A process that begins anew has another incarnation: its tensors are others.
func (e *edge) key(seed uint64, function uint64, c *content) uint64 {
	return mix.Words(mix.Words(seed, keyOfEdge, hashOf(e.from), hashOf(e.incarnation)), hashOf(e.to), hashOf(e.name), hashOf(e.frame), function, c.number, c.shape.hash)
}

// shared returns the Base of an edge: the same for all receivers, since programs of all workers number their edges
// alike.
func (e *edge) shared(seed uint64, c *content) uint64 {
	return mix.Words(mix.Words(seed, keyOfShared, hashOf(e.from), hashOf(e.incarnation)), hashOf(e.name), hashOf(e.frame), c.number, c.shape.hash)
}

// A request is a RecvTensorRequest or a RecvBufRequest.
type request struct {
	step, id    uint64
	key         string
	size        int    // of the buffer, in bytes
	from, to    string // devices, of a buffer
	incarnation uint64 // of from
}

// held returns how many bytes the texts take.
func (r *request) held() int { return len(r.key) + len(r.from) + len(r.to) }

// A chunk is the key of a collective's buffer (buf_rendezvous_key): of a ring's reduce and gather group, instance,
// frame, iteration, phase, section and source; of a broadcast group, instance, frame, iteration, subdivision, source
// and destination. The key does not say which.
type chunk struct {
	group, instance uint64
	rest            [5]uint64 // frame, iteration, and three others
}

// phase returns 0 for the phase of a ring that adds up, 1 for the phase that copies results.
func (c *chunk) phase() uint64 { return c.rest[2] }

// parseChunk reads a buffer's key. It reports false if the text is none.
func parseChunk(key string) (c chunk, ok bool) {
	parts := strings.Split(key, ":")
	if len(parts) != 7 {
		return c, false
	}
	var n [7]uint64
	for i, p := range parts {
		v, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return c, false
		}
		n[i] = uint64(v)
	}
	return chunk{n[0], n[1], [5]uint64(n[2:])}, true
}

// key returns the Key of a buffer of a collective, which has another number at each step.
func (c *chunk) key(seed uint64, r *request, of *collective) uint64 {
	return mix.Words(mix.Words(seed, keyOfBuffer, hashOf(r.from), hashOf(r.to), r.incarnation, c.group), mix.Words(c.rest[:]...), hashOf(of.name), of.number, of.shape.hash, uint64(r.size))
}
