package pslite

import "github.com/gradproxy/gradproxy/parser/lru"

// A recent is a map of the entries that were used last, at most limit of them. The zero recent has limit 0 and must not be used.
type recent[K comparable, V any] struct {
	lru.Cache[K, V]
	limit int
}

// keep sets the value of k. If there is one entry too many, the one that was not used for longest is forgotten.
func (r *recent[K, V]) keep(k K, v V) {
	r.Put(k, v)
	if r.Len() > r.limit {
		oldest, _, _ := r.Oldest()
		r.Delete(oldest)
	}
}
