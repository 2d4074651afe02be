package inspect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/estimate"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A reader gives one connection to the parsers of one protocol, as the proxies at both of its ends do: the one beside
// the sender classifies, the other one learns.
type reader struct {
	protocol string
	sites    [2]string           // by side: which values are held there
	parsers  [2][2]parser.Parser // by the proxy's side, then by direction
	ended    [2]bool             // the direction is not understood any more
	deaf     [2]bool             // nor by the far proxy
	tallies  [2]tally
	values   [2]map[uint64]*value // under way, by direction and key
	tensors  *tensors
	costings []*costing
	each     func(Value)                // may be nil
	segments []parser.Segment           // of the bytes at hand
	runs     []methodRun                // of these, with the methods of their tensors
	methods  [2]map[string]*methodTally // by direction, then by method
	flows    [2][]*estimate.Flow        // by direction, then as costings; nil: it has had no tensor
	err      error                      // of a flow
}

// A tally counts one direction.
type tally struct {
	bytes int
	hash  hash.Hash // SHA-256 of the payloads
	roles RoleBytes
}

func newHash() hash.Hash        { return sha256.New() }
func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// noPayload is the SHA-256 of nothing.
const noPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// data takes the next bytes of one side. It reports false if the protocol is another one.
func (r *reader) data(from parser.Side, b []byte) bool {
	for rest := b; len(rest) > 0 && !r.deaf[from]; {
		seg, err := r.parsers[1-from][from].Next(rest)
		if err != nil {
			r.deaf[from] = true
			break
		}
		rest = rest[seg.Len:]
	}
	r.segments, r.runs = r.segments[:0], r.runs[:0]
	understood := b
	for rest := b; len(rest) > 0 && !r.ended[from]; {
		seg, err := r.parsers[from][from].Next(rest)
		if err != nil {
			r.ended[from], understood = true, b[:len(b)-len(rest)]
			if errors.Is(err, parser.ErrForeign) {
				return false
			}
			break
		}
		r.tensors.result(seg.Tensor, rest[:seg.Len])
		for _, f := range r.flows[1-from] {
			f.See(seg.Tensor, rest[:seg.Len])
		}
		if seg.Tensor.Size > 0 && !seg.Tensor.Index() {
			r.payload(from, seg.Tensor, rest[:seg.Len])
		}
		r.segments = append(r.segments, seg)
		r.run(seg, parser.MethodOf(r.parsers[from][from]))
		rest = rest[seg.Len:]
	}
	if len(r.segments) > 0 {
		r.cost(from, understood)
	}
	return true
}

// cost shows bytes that were understood to all costings, from the first tensor on.
func (r *reader) cost(from parser.Side, b []byte) {
	if r.flows[from] == nil {
		if !slices.ContainsFunc(r.segments, func(s parser.Segment) bool { return s.Tensor.Size > 0 }) {
			return
		}
		direction := [2]policy.Direction{parser.Client: policy.FromClient, parser.Server: policy.FromServer}[from]
		for _, c := range r.costings {
			r.flows[from] = append(r.flows[from], c.flow(r.protocol, direction, r.sites[1-from]))
		}
	}
	for i, f := range r.flows[from] {
		r.err = cmp.Or(r.err, r.send(from, i, f, b))
	}
}

// close ends the flows and returns their sizes, by direction, then as costings.
func (r *reader) close() (sizes [2][]estimate.Sizes, err error) {
	for side, flows := range r.flows {
		for _, f := range flows {
			s, err := f.Close()
			r.err = cmp.Or(r.err, err)
			sizes[side] = append(sizes[side], s)
		}
	}
	r.flows = [2][]*estimate.Flow{}
	return sizes, r.err
}

// payload takes bytes of a tensor.
func (r *reader) payload(from parser.Side, t tensor.Tensor, b []byte) {
	if m := t.Mask; m != (tensor.Mask{}) {
		plain := make([]byte, len(b))
		m.From(t.Off).Copy(plain, b)
		b = plain
	}
	tally := &r.tallies[from]
	tally.bytes += len(b)
	tally.hash.Write(b)
	v := r.value(from, t)
	for len(b) > 0 {
		n := min(len(b), v.need())
		if v.data = append(v.data, b[:n]...); v.need() == 0 {
			role := r.tensors.judge(tally, v.tensor, v.off, v.data)
			r.tensors.message(v.tensor, v.data)
			tally.roles.add(role, len(v.data))
			if r.each != nil {
				v.whole.add(v, role, r.each)
			}
			v.next()
		}
		b = b[n:]
	}
	if v.off == v.tensor.Size {
		delete(r.values[from], t.Key)
	}
}

// maxUnder bounds the values of a direction that are under way at a time, as the proxy's sender does.
const maxUnder = 1024

// value returns the value to which the next bytes of t belong. Values of several tensors may interleave.
func (r *reader) value(from parser.Side, t tensor.Tensor) *value {
	v := r.values[from][t.Key]
	if v == nil || t.Off == 0 || v.off+len(v.data) != t.Off || v.tensor.Size != t.Size { // two values of a key may interleave
		if r.values[from] == nil || len(r.values[from]) >= maxUnder {
			r.values[from] = map[uint64]*value{}
		}
		v = &value{tensor: t, off: t.Off}
		r.values[from][t.Key] = v
	}
	return v
}

// known reports whether a side speaks the protocol: it sent a message, or a handshake that is no other protocol's.
func (r *reader) known(side parser.Side) bool {
	c, ok := r.parsers[side][side].(parser.Counter)
	return ok && c.Recognized()
}

// blockLen is the length in bytes of a block that the content check judges at once.
const blockLen = 1 << 20

// A value collects the bytes of a tensor, a block at a time.
type value struct {
	tensor tensor.Tensor
	off    int // of the block in the tensor
	data   []byte
	whole  wholeValue
}

// need returns how many bytes the block lacks.
func (v *value) need() int { return min(blockLen, v.tensor.Size-v.off) - len(v.data) }

func (v *value) next() { v.off, v.data = v.off+len(v.data), v.data[:0] }
