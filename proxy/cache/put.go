package cache

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Put is the value of a block on its way into the peer's store.
type Put struct {
	Decl    frame.Declaration // names the block: job, key (the tensor's Base), offset, elements. Its codec does not count
	Data    []byte            // the elements; they are the caller's again when the value is put
	Choice  policy.Choice     // how the value travels
	Role    tensor.Role       // for metrics
	Short   bool              // the peer has Short
	Observe *tensors.Record   // learns the bytes that the value takes, and how long coding it takes

	Answered bool // values that come back will be coded against it
	Again    bool // though it may have lost something, the same value is the same to a connection that sends it again: no closer one is sent

	// For PutParts.
	Raw   bool   // the value travels as it is, since coding has not paid of late
	ID    uint64 // names the content; 0: unknown
	Own   uint64 // the tensor's Key: for a value that is put where a value of its Base cannot be
	marks []mark // of Data
}

// Models is the name under which hellos list, among codecs, that a proxy takes values that are coded against values of
// another tensor (Declaration.Base) that came the other way.
const Models = "models"

// mayLose reports whether a value that travels so may lose something.
func (v *Put) mayLose() bool { return codecs.Lossy(v.Choice.Codec) }
