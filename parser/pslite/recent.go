package pslite

// A recent is a map that holds at most 2*limit entries and forgets the entries that were not used for longest. It has two
// generations: when the young one has limit entries it becomes the old one, and the old one is dropped. The last limit
// different keys that were used are always there. The zero recent has limit 0 and must not be used.
type recent[K comparable, V any] struct {
	limit      int // entries of a generation
	young, old map[K]V
}

// get returns the value of k, and counts as a use of k.
func (r *recent[K, V]) get(k K) (v V, ok bool) {
	if v, ok = r.young[k]; ok {
		return v, true
	}
	if v, ok = r.old[k]; ok {
		r.put(k, v)
	}
	return v, ok
}

// put sets the value of k.
func (r *recent[K, V]) put(k K, v V) {
	if _, ok := r.young[k]; !ok && len(r.young) >= r.limit {
		r.old, r.young = r.young, nil
	}
	if r.young == nil {
		r.young = map[K]V{}
	}
	r.young[k] = v
}
