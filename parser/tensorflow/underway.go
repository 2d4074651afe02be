package tensorflow

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
)

// An underWay holds the tensors of one direction that are under way, by their keys. The zero underWay holds none.
type underWay struct {
	byKey    map[uint64]*message
	messages map[*message]struct{} // that have keys
	enough   int                   // messages with which the next look for reset ones is due; at least maxUnder
	largest  int                   // keys at once since byKey was made: a map does not shrink
	looked   int                   // messages that all looks have been at
}

// maxUnder is how many messages are noted before such as have been reset are looked for.
const maxUnder = 64

// perKey is about how many bytes a key takes, in the map and in its message.
const perKey = 48

// claim makes key the key of a tensor of m, unless another tensor of it is under way: false.
func (u *underWay) claim(m *message, key uint64) bool {
	switch other := u.byKey[key]; {
	case other == m:
		return true
	case other != nil && !other.call.stream.Over():
		return false
	case other != nil: // it was reset, and would be kept for its other keys
		u.release(other)
	}
	if u.byKey == nil {
		u.byKey, u.messages = map[uint64]*message{}, map[*message]struct{}{}
	}
	if _, ok := u.messages[m]; !ok {
		u.sweep()
		u.messages[m] = struct{}{}
	}
	u.byKey[key] = m
	u.largest = max(u.largest, len(u.byKey))
	m.claimed = append(m.claimed, key)
	return true
}

// sweep gives up the keys of messages that have been reset, once there are twice as many messages as the last look has left: so a message costs at
// most two looks in the mean, however many there are, and each of its keys one.
func (u *underWay) sweep() {
	if len(u.messages) < max(u.enough, maxUnder) {
		return
	}
	u.looked += len(u.messages)
	for m := range u.messages {
		if m.call.stream.Over() {
			u.drop(m)
		}
	}
	u.enough = 2 * len(u.messages)
	u.shrink()
}

// drop gives up the keys of a message.
func (u *underWay) drop(m *message) {
	for _, k := range m.claimed {
		if u.byKey[k] == m {
			delete(u.byKey, k)
		}
	}
	m.claimed = nil
	delete(u.messages, m)
}

// release gives up the keys of a message that has ended.
func (u *underWay) release(m *message) {
	u.drop(m)
	u.shrink()
}

// shrink makes a smaller map once three quarters of the keys have gone.
func (u *underWay) shrink() {
	if u.largest <= maxUnder || len(u.byKey) > u.largest/4 {
		return
	}
	left := make(map[uint64]*message, len(u.byKey))
	for k, m := range u.byKey {
		left[k] = m
	}
	u.byKey, u.largest = left, len(left)
}

// held returns about how many bytes the keys take.
func (u *underWay) held() int { return perKey * u.largest }

// Held implements [grpc.Sized].
func (x *connection) Held(from parser.Side) int { return x.under[from].held() }

var _ grpc.Sized = (*connection)(nil)
