package lru

// A Shared is a Cache of several holders' values with one limit for all of them. When it is full the holder that has most gives way, so that no holder can have the
// values of one with less than its share forgotten. The zero Shared is empty. It is not safe for concurrent use.
type Shared[H, K comparable, V any] struct {
	holders map[H]*Cache[K, V]
	n       int
}

// Len returns the number of all holders' values.
func (s *Shared[H, K, V]) Len() int { return s.n }

// Of returns the values of a holder, which the caller must not change; nil: it has none.
func (s *Shared[H, K, V]) Of(h H) *Cache[K, V] { return s.holders[h] }

// Use returns a holder's value of k, which is then the newest.
func (s *Shared[H, K, V]) Use(h H, k K) (v V, ok bool) {
	c := s.holders[h]
	if c == nil {
		return v, false
	}
	return c.Use(k)
}

// Keep sets a holder's value of k, which is then the newest, and drops the oldest ones of holders that have most until at most limit are left. Of equals h gives way.
func (s *Shared[H, K, V]) Keep(h H, k K, v V, limit int) {
	c := s.holders[h]
	if c == nil {
		if s.holders == nil {
			s.holders = map[H]*Cache[K, V]{}
		}
		c = new(Cache[K, V])
		s.holders[h] = c
	}
	s.n -= c.Len()
	c.Put(k, v)
	for s.n += c.Len(); s.n > max(limit, 0); s.n-- {
		largest, has := h, c
		for other, o := range s.holders {
			if o.Len() > has.Len() {
				largest, has = other, o
			}
		}
		if has.remove(has.order.Oldest()); has.Len() == 0 {
			delete(s.holders, largest)
		}
	}
}
