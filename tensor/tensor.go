// Package tensor is the vocabulary that parsers and codecs share: it describes the meaning of a run of bytes of a
// training job's connection, and the types of the elements that such bytes hold.
package tensor

// A Tensor describes the part of a tensor that a segment holds, and its meaning to the job.
//
// Tensors of one direction of a connection may interleave, as HTTP/2 streams do: after some bytes of one tensor bytes
// of another may follow, and later the rest of the first. The sender tells them apart by Key, so tensors that
// interleave must have distinct keys, and none of them may have Key 0. A parser that cannot name them must call their
// bytes opaque: of two interleaved tensors with one key the first is given up, and the rest of it travels verbatim.
type Tensor struct {
	// Key is the same at every step, at both proxies and after a reconnect: it is made of protocol facts, never of
	// ports. 0: unknown.
	Key uint64

	Role  Role  // as far as the parser has proved it
	DType DType // of the elements, little-endian; 0: unknown (lossless methods probe the width)
	Size  int   // bytes in the whole tensor; 0: not a tensor
	Off   int   // offset of the segment in the tensor, in bytes

	// Hold is how many bytes, from Off on, the sender writes without waiting for an answer. They must end between two
	// elements, or a codec that may lose something errs.
	Hold int

	// Base is the key of the values that predict this one, or that other receivers get alike. 0: there are none.
	Base uint64

	// Model is the Base of the tensors that go the other way whose latest value this one answers and is predicted by,
	// as the result of a training is by the model that it began with. 0: Base predicts it.
	Model uint64

	// Keys is the Key of the index array that names the rows of this sparse tensor and is sent before it; in an index
	// array it is its own Key. 0: the tensor is dense.
	Keys uint64

	Why   Reason // why Role or DType is not known
	Proof Proof  // of Role

	// Origin names the app's own memory that the tensor is of: once this connection has ended, a tensor of a later one
	// with the same Origin is this tensor. 0: not known.
	Origin uint64

	// Part names the part of a sum that the message holds. The message with some ranks' inputs and the one with the
	// result, which may go the other way, have the same Part. 0: unknown.
	Part  uint64
	Whole bool // the message of Part has the result

	Answered bool // values that go the other way will have this one as their Model

	// ID names the content before it comes: values with the same ID have the same bytes. 0: unknown.
	ID uint64

	// Repeats says that the same bytes are likely to be sent again, here or to another receiver, and maybe in other
	// pieces. They should cross once, whatever they gain.
	Repeats bool

	Mask Mask // of the tensor's bytes on the wire, from its first on

	// CRC32 says that the app sends a CRC-32 (IEEE) that covers the tensor, and that its reader compares it. Where
	// elements change, the CRC-32 must stay as it is.
	CRC32 bool

	// Placed is the place of the message in the weights with which its job began; nil: they are not known, or the sum
	// has not their size.
	Placed *Placement
}

// Index reports whether t is an index array: its elements are the keys or the lengths of the parts of a payload.
func (t Tensor) Index() bool { return t.Keys != 0 && t.Keys == t.Key }

// A Role says how a tensor's elements may be changed on the way. Without proof the role is Unknown.
type Role uint8

const (
	Unknown   Role = iota // lossless
	Exact                 // keys, lengths, first pushes, broadcasts: lossless, and no policy can change that
	Gradient              // one summand: loss by policy, with feedback
	Aggregate             // a sum that replicas must receive alike: lossless unless the policy opts in
	State                 // weights: lossless, or a closed-loop difference to the value that the receiver holds
)

var roleNames = [...]string{"unknown", "exact", "gradient", "aggregate", "state"}

// Roles lists every role in the order of its value.
func Roles() []Role { return []Role{Unknown, Exact, Gradient, Aggregate, State} }

// String returns the role's name as policies and metrics write it.
func (r Role) String() string { return name(roleNames[:], int(r)) }

// ParseRole returns the role named s, and false if there is none.
func ParseRole(s string) (Role, bool) {
	i, ok := find(roleNames[:], s)
	return Role(i), ok
}

// A Proof is the source of a tensor's role, the weakest first.
type Proof uint8

const (
	ByUser   Proof = iota // the user's word, and how messages repeat: the content must earn trust before the tensor loses anything
	ByWire                // the messages that the app sends: a gradient's content is trusted at first, and checked
	ByUpdate              // servers, which apply the tensor to their weights by an optimizer that they were given, or as a difference that the app announces: a content check is not needed
	ByCall                // the app's process, which was seen to call the collective: a content check is not needed
)

// NeedsContent reports whether the tensor's content must support the role.
func (p Proof) NeedsContent() bool { return p < ByUpdate }

// Evidence returns the proof of the role and the type, or the reason for an unknown one, in the words that users see.
func (t Tensor) Evidence() string {
	if t.Why == OK && t.Proof == ByCall {
		return "called by DDP"
	}
	return t.Why.String()
}

// ProvedBy returns the source of the proof of the role in the words that users see; "": there is no proof, or it is not
// told. The user's word makes nothing Exact or State.
func (t Tensor) ProvedBy() string {
	switch {
	case t.Role == Unknown || t.Why != OK && t.Why != DTypeUnknown:
		return ""
	case t.Proof == ByCall:
		return "the process's call"
	case t.Proof == ByUpdate:
		return "the servers' update"
	case t.Proof == ByWire:
		return "the app's messages"
	case t.Role == Gradient || t.Role == Aggregate:
		return "the user's word"
	}
	return ""
}

// A Reason answers "why was this not compressed?", the first question of every user. The list is fixed, and every
// Reason has a name.
type Reason uint8

const (
	OK           Reason = iota // the tensor is coded as the policy says
	NoRule                     // no rule of the policy matches the tensor
	RoleUnproved               // nothing proves the role
	DTypeUnknown               // the element type is not known
	Implausible                // the block does not look like the tensor's last value
	Stalled                    // the rest of a block did not come in time
	NoGain                     // coding does not make the tensor smaller, or costs more time than it saves
	NoReference                // the peer does not hold the reference
	PeerLacks                  // the peer does not have the codec
	TooSmall                   // the tensor is smaller than the rule's minimum
	NoMemory                   // the memory budget is spent
	Learning                   // the parser needs to see more steps before it can prove a role

	CallUnseen        // the app's process is watched, but its call of this collective was not seen
	OtherCaller       // other code than DistributedDataParallel calls this collective
	NoSum             // the call is no sum of floats
	CallerUnclear     // several process groups may have made this call, and they disagree
	RanksUnknown      // DistributedDataParallel calls this collective, but the number of ranks is not known
	CallsContradicted // the connection has carried something else than the process has called
	ProbeLate         // the process that sees the calls did not answer in time

	Contested // other sums of the step have this one's size: its place does not tell it from them

	Doubted // another sum of the job was found to be no gradient
	Guarded // receivers are too far behind: the block travels exactly for a while

	Checksum // a checksum comes with the tensor, and these values cannot change without changing it
)

var reasonNames = [...]string{"ok", "no rule", "role unproved", "dtype unknown", "implausible", "stalled",
	"no gain", "no reference", "peer lacks codec", "too small", "no memory", "learning",
	"call not seen", "other caller", "no sum", "caller unclear", "ranks unknown", "calls contradicted", "probe late", "contested", "job doubted", "guarded", "checksum"}

// Valid reports whether r is one of the reasons.
func (r Reason) Valid() bool { return int(r) < len(reasonNames) }

// String returns the reason in the words that users see.
func (r Reason) String() string { return name(reasonNames[:], int(r)) }
