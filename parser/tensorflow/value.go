package tensorflow

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// A requestReader reads a request.
type requestReader struct {
	message *message
	of      request
}

// Fields of RecvTensorRequest and RecvBufRequest (tensorflow/core/protobuf/worker.proto).
var (
	pathStep              = protoscan.Of(1)
	pathKey               = protoscan.Of(2)
	pathTensorRequest     = protoscan.Of(7)
	pathBufferSize        = protoscan.Of(3)
	pathBufferFrom        = protoscan.Of(8)
	pathBufferTo          = protoscan.Of(9)
	pathBufferRequest     = protoscan.Of(10)
	pathBufferIncarnation = protoscan.Of(11)
)

func (r *requestReader) isBuffer() bool { return r.message.call.kind == recvBuf }

func (r *requestReader) Field(p protoscan.Path, n int) protoscan.Action {
	if p == pathKey || r.isBuffer() && (p == pathBufferFrom || p == pathBufferTo) {
		return protoscan.Keep
	}
	return protoscan.Skip
}

func (r *requestReader) Kept(p protoscan.Path, b []byte) {
	text := string(b)
	switch p {
	case pathKey:
		r.of.key = text
	case pathBufferFrom:
		r.of.from = text
	case pathBufferTo:
		r.of.to = text
	}
}

func (r *requestReader) Number(p protoscan.Path, v uint64) {
	switch {
	case p == pathStep:
		r.of.step = v
	case p == pathTensorRequest && !r.isBuffer(), p == pathBufferRequest && r.isBuffer():
		r.of.id = v
	case p == pathBufferSize && r.isBuffer():
		r.of.size = int(min(v, tooMany))
	case p == pathBufferIncarnation && r.isBuffer():
		r.of.incarnation = v
	}
}

func (r *requestReader) Leave(protoscan.Path) {}

func (r *requestReader) end(whole bool) bool {
	if whole {
		r.message.call.set(r.of)
	}
	return false
}

func (r *requestReader) held() int { return r.of.held() }

// A valueReader reads a RecvTensorResponse.
type valueReader struct {
	message *message
	content content
	dead    bool // is_dead: no value
	payload bool
}

// Fields of RecvTensorResponse.
var (
	pathTensor = protoscan.Of(1)
	pathDead   = protoscan.Of(2)
)

func (r *valueReader) Field(p protoscan.Path, n int) protoscan.Action {
	a, isContent := r.content.field(pathTensor, p)
	if !isContent {
		return a
	}
	t, e, ok := r.content.value(n)
	if !ok || r.payload { // a second tensor
		return protoscan.Skip
	}
	r.payload = true
	x := r.message.call.conn
	ask := r.message.call.get()
	edge, named := parseEdge(ask.key)
	repeated := x.facts.repeated(x.scope, ask.id)
	if !named || n == 0 {
		return protoscan.Skip
	}
	var function uint64
	if e.value && !r.dead && !repeated && !r.content.listed {
		var role edgeRole
		role, function = x.facts.role(x.scope, ask.step, edge.rendezvous())
		setRole(&t, role, x.conn.Sums)
	}
	if t.Key = edge.key(x.seed, function, &r.content); !x.under[r.message.head.From].claim(r.message, t.Key) {
		return protoscan.Skip
	}
	switch {
	case t.Role == tensor.Gradient:
		if t.Keys != 0 {
			t.Keys = mix.Words(t.Key, t.Keys)
		}
	case t.Base != 0:
		t.Base = edge.shared(x.seed, &r.content)
	}
	r.message.value = t
	return protoscan.Emit
}

// minDescent is the size in bytes from which on a tensor that is scaled and subtracted, or added, can be the gradient
// and not its scale.
const minDescent = 4 << 10

// setRole sets the role of floats, by their edge's. Keys and Base other than 0 ask for a Key and a Base.
func setRole(t *tensor.Tensor, r edgeRole, sums parser.Sums) {
	t.Role, t.Why = tensor.Unknown, tensor.RoleUnproved
	switch r {
	case gradient, rows:
		t.Role, t.Why, t.Proof = tensor.Gradient, tensor.OK, tensor.ByUpdate
	case descent:
		if t.Size >= minDescent {
			t.Role, t.Why = tensor.Gradient, tensor.OK
		}
	case update:
		if t.Size >= minDescent && sums == parser.SumsGradients {
			t.Role, t.Why, t.Proof = tensor.Gradient, tensor.OK, tensor.ByUser
		}
	case assigned, gathered:
		t.Role, t.Why = tensor.State, tensor.OK
	case read:
		t.Role, t.Why, t.Base = tensor.State, tensor.OK, 1
	case unclear:
		t.Base = 1
	}
	if r == rows || r == descent {
		t.Keys = 1
	}
}

func (r *valueReader) Kept(protoscan.Path, []byte) {}

func (r *valueReader) Number(p protoscan.Path, v uint64) {
	if p == pathDead {
		r.dead = v != 0
	}
	r.content.numbered(pathTensor, p, v)
}

func (r *valueReader) Leave(protoscan.Path) {}
func (r *valueReader) end(bool) bool        { return r.payload }
func (r *valueReader) held() int            { return 0 }

// A bufferReader reads a RecvBufResponse, whose pieces are one tensor.
type bufferReader struct {
	message *message
	begun   bool
	left    int // bytes of the tensor that have no piece yet
}

// Fields of RecvBufResponse; transport_options is an Any (type_url 1, value 2) of a RecvBufRespExtra.
var (
	pathExtra      = protoscan.Of(4)
	pathExtraValue = protoscan.Of(4, 2)
	pathPiece      = protoscan.Of(4, 2, 1)
)

func (r *bufferReader) Field(p protoscan.Path, n int) protoscan.Action {
	switch p {
	case pathExtra, pathExtraValue:
		return protoscan.Descend
	case pathPiece:
	default:
		return protoscan.Skip
	}
	if !r.begun {
		r.begun = true
		r.begin()
	}
	if n > r.left {
		r.left, r.message.value = 0, tensor.Tensor{}
		return protoscan.Skip
	}
	r.left -= n
	return protoscan.Emit
}

// begin begins the tensor, if it is known to be one.
func (r *bufferReader) begin() {
	x := r.message.call.conn
	ask := r.message.call.get()
	c, ok := parseChunk(ask.key)
	if !ok || ask.size == 0 || ask.size > maxTensor {
		return
	}
	t := tensor.Tensor{Role: tensor.Unknown, Size: ask.size, Why: tensor.DTypeUnknown, Proof: tensor.ByWire}
	of, calls, ok := x.facts.collective(instanceID{x.scope, c.group, c.instance})
	if e := typeOf(of.number); ok && e.size > 0 && ask.size%e.size == 0 {
		t.DType = e.dtype
		setCollective(&t, &of, e, c.phase(), calls, x.conn.Sums)
	}
	if x.facts.repeated(x.scope, ask.id) {
		t.Role, t.Proof, t.Why = tensor.Exact, tensor.ByWire, tensor.OK
	}
	t.Key = c.key(x.seed, &ask, &of)
	if x.under[r.message.head.From].claim(r.message, t.Key) {
		r.message.value, r.left = t, t.Size
	}
}

// minCalls is how often a sum must come before the user's word is taken for it: metrics are summed less often than
// gradients.
const minCalls = 3

// setCollective sets the role of a buffer of a collective. Nothing on the wire tells a sum of gradients from other
// sums.
func setCollective(t *tensor.Tensor, of *collective, e elementType, pass uint64, calls int, sums parser.Sums) {
	t.Why = tensor.RoleUnproved
	switch {
	case of.typ == typeBroadcast || !e.value:
		if t.Role, t.Why = tensor.Exact, tensor.OK; e.dtype == tensor.NoDType {
			t.Why = tensor.DTypeUnknown
		}
	case of.typ == typeReduce && sums == parser.SumsGradients && of.shape.size(e) >= minDescent:
		if t.Why = tensor.Learning; calls < minCalls {
			return
		}
		t.Role, t.Why, t.Proof = tensor.Gradient, tensor.OK, tensor.ByUser
		if pass != 0 {
			t.Role = tensor.Aggregate
		}
	}
}

func (r *bufferReader) Kept(protoscan.Path, []byte)   {}
func (r *bufferReader) Number(protoscan.Path, uint64) {}
func (r *bufferReader) Leave(protoscan.Path)          {}
func (r *bufferReader) end(bool) bool                 { return r.begun }
func (r *bufferReader) held() int                     { return 0 }
