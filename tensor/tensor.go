// Package tensor is the one word that parsers and codecs share: what a run of bytes of a training job's
// connection means, and the element types that such bytes hold.
package tensor

// A Tensor says which bytes of which tensor a segment holds, and what they mean to the job.
type Tensor struct {
	Key   uint64 // the same at every step, at both proxies and after a reconnect (made of protocol facts, never of ports); 0: unknown
	Role  Role   // as far as it is proved
	DType DType  // of the elements, little-endian; 0: unknown (lossless methods probe the width)
	Size  int    // bytes in the whole tensor; 0: not a tensor
	Off   int    // where in it the segment begins, in bytes
	Hold  int    // bytes, from Off on, that the sender writes without waiting for an answer
	Base  uint64 // key under which values that predict this one, or are the same for other receivers, are known; 0: none
	Keys  uint64 // Key of the index array that this sparse tensor's rows belong to, sent before it; in an index array its own; 0: dense
	ID    []byte // name of the content, where a protocol tells it before the content comes; nil: none
	Why   Reason // why Role or DType is not known: a fixed list, shown to the user
}

// Index reports whether t is an index array: it says of which keys, or how long, the parts of a payload are.
func (t Tensor) Index() bool { return t.Keys != 0 && t.Keys == t.Key }

// A Role says what may happen to a tensor's elements. Without proof it is Unknown.
type Role uint8

const (
	Unknown   Role = iota // lossless
	Exact                 // keys, lengths, first pushes, broadcasts: lossless, whatever the policy says
	Gradient              // one summand: loss by policy, with feedback
	Aggregate             // a sum that replicas must receive alike: lossless unless the policy opts in
	State                 // weights: lossless, or a closed-loop difference to what the receiver holds
)

var roleNames = [...]string{"unknown", "exact", "gradient", "aggregate", "state"}

// Roles lists every role in the order of its value.
func Roles() []Role { return []Role{Unknown, Exact, Gradient, Aggregate, State} }

// String returns the role's name as policies and metrics write it.
func (r Role) String() string { return name(roleNames[:], int(r)) }

// ParseRole returns the role of that name.
func ParseRole(s string) (Role, bool) {
	i, ok := find(roleNames[:], s)
	return Role(i), ok
}

// A Reason says why a tensor travels as it does. It answers "why was this not compressed?", the first
// question of every user, so the list is fixed and every value has a name.
type Reason uint8

const (
	OK           Reason = iota // it is coded as the policy says
	NoRule                     // no rule of the policy names it
	RoleUnproved               // the wire does not prove what the elements mean
	DTypeUnknown               // the element type is not known
	Implausible                // the block does not look like the tensor's last value
	Stalled                    // the rest of a block did not come in time
	NoGain                     // coding does not make it smaller, or costs more time than it saves
	NoReference                // the peer does not hold the value to differ from
	PeerLacks                  // the peer does not have the codec
	TooSmall                   // under the rule's minimum
	NoMemory                   // the budget for what it takes is spent
	Learning                   // it may prove a gradient or an aggregate once more has been seen
)

var reasonNames = [...]string{"ok", "no rule", "role unproved", "dtype unknown", "implausible", "stalled",
	"no gain", "no reference", "peer lacks codec", "too small", "no memory", "learning"}

// String returns the reason in the words that users see.
func (r Reason) String() string { return name(reasonNames[:], int(r)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

func find(names []string, s string) (int, bool) {
	for i, n := range names {
		if n == s {
			return i, true
		}
	}
	return 0, false
}
