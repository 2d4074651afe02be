package tensorflow

// An owner is a message whose tensors have keys.
type owner interface {
	comparable
	over() bool      // its stream has been reset, or has ended
	keys() *[]uint64 // that it has claimed; only an underWay changes them
}

// An underWay holds the tensors of one direction that are under way, by their keys. The zero underWay holds none.
type underWay[M owner] struct {
	byKey    map[uint64]M
	messages map[M]struct{} // that have keys
	enough   int            // messages with which the next look for reset ones is due; at least maxUnder
	largest  int            // keys at once since byKey was made: a map does not shrink
	looked   int            // messages that all looks have been at
}

// maxUnder is how many messages are noted before such as have been reset are looked for.
const maxUnder = 64

// perKey is about how many bytes a key takes, in the map and in its message.
const perKey = 48

// claim makes key the key of a tensor of m, unless another tensor of it is under way: false.
func (u *underWay[M]) claim(m M, key uint64) bool {
	switch other, taken := u.byKey[key]; {
	case taken && other == m:
		return true
	case taken && !other.over():
		return false
	case taken: // it was reset, and would be kept for its other keys
		u.release(other)
	}
	if u.byKey == nil {
		u.byKey, u.messages = map[uint64]M{}, map[M]struct{}{}
	}
	if _, ok := u.messages[m]; !ok {
		u.sweep()
		u.messages[m] = struct{}{}
	}
	u.byKey[key] = m
	u.largest = max(u.largest, len(u.byKey))
	keys := m.keys()
	*keys = append(*keys, key)
	return true
}

// sweep gives up the keys of messages that have been reset, once there are twice as many messages as the last look has
// left: so a message costs at most two looks in the mean, however many there are, and each of its keys one.
func (u *underWay[M]) sweep() {
	if len(u.messages) < max(u.enough, maxUnder) {
		return
	}
	u.looked += len(u.messages)
	for m := range u.messages {
		if m.over() {
			u.drop(m)
		}
	}
	u.enough = 2 * len(u.messages)
	u.shrink()
}

// drop gives up the keys of a message.
func (u *underWay[M]) drop(m M) {
	keys := m.keys()
	for _, k := range *keys {
		if u.byKey[k] == m {
			delete(u.byKey, k)
		}
	}
	*keys = nil
	delete(u.messages, m)
}

// release gives up the keys of a message that has ended.
func (u *underWay[M]) release(m M) {
	u.drop(m)
	u.shrink()
}

// shrink makes a smaller map once three quarters of the keys have gone.
func (u *underWay[M]) shrink() {
	if u.largest <= maxUnder || len(u.byKey) > u.largest/4 {
		return
	}
	left := make(map[uint64]M, len(u.byKey))
	for k, m := range u.byKey {
		left[k] = m
	}
	u.byKey, u.largest = left, len(left)
}

// held returns about how many bytes the keys take.
func (u *underWay[M]) held() int { return perKey * u.largest }
