package tensorflow

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// An instanceReader reads CompleteInstanceRequest.
type instanceReader struct {
	message         *message
	of              collective
	group, instance uint64
}

// Fields of CompleteInstanceRequest (tensorflow/core/protobuf/worker.proto).
var (
	pathInstanceName  = protoscan.Of(1)
	pathInstanceType  = protoscan.Of(2)
	pathInstanceDType = protoscan.Of(3)
	pathInstanceShape = protoscan.Of(4)
	pathInstanceDim   = protoscan.Of(4, fieldDim)
	pathInstanceSize  = protoscan.Of(4, fieldDim, fieldDimSize)
	pathGroup         = protoscan.Of(5)
	pathInstance      = protoscan.Of(7)
)

func (r *instanceReader) Field(p protoscan.Path, n int) protoscan.Action {
	switch p {
	case pathInstanceName:
		return protoscan.Keep
	case pathInstanceShape, pathInstanceDim:
		return protoscan.Descend
	}
	return protoscan.Skip
}

func (r *instanceReader) Kept(_ protoscan.Path, b []byte) {
	r.of.name = string(b[:min(len(b), maxName)])
}

func (r *instanceReader) Number(p protoscan.Path, v uint64) {
	switch p {
	case pathInstanceType:
		r.of.typ = v
	case pathInstanceDType:
		r.of.number = v
	case pathInstanceSize:
		r.of.shape.add(v)
	case pathGroup:
		r.group = v
	case pathInstance:
		r.instance = v
	}
}

func (r *instanceReader) Leave(protoscan.Path) {}

func (r *instanceReader) held() int { return len(r.of.name) }

func (r *instanceReader) end(whole bool) bool {
	if whole {
		x := r.message.call.conn
		x.facts.instance(instanceID{x.scopeOfWords(r.message.head.From), r.group, r.instance}, r.of)
	}
	return false
}

// scopeOfWords returns the scope of what that side of the connection tells of collectives.
func (x *connection) scopeOfWords(from parser.Side) scope {
	if x.conn.Job != "" && from == x.conn.Own {
		return x.scope.ofSite()
	}
	return x.scope
}
