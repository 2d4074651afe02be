package lru

// A Shared is a Cache of several holders' values with one limit for all of them. When it is full the holder that has
// most gives way, so that no holder can have the values of one with less than its share forgotten. The zero Shared is
// empty, and counts each value as one. It is not safe for concurrent use.
type Shared[H, K comparable, V any] struct {
	// Cost, at least 0, is a value's part of the limit; nil: one. It must be set before the first value is kept, and a
	// value's cost must not change.
	Cost func(V) int

	holders map[H]*owned[K, V]
	n       int // costs of all holders' values
}

type owned[K comparable, V any] struct {
	values Cache[K, V] // not embedded: its methods would be compiled once more, in each package that sees a type with a Shared
	n      int         // costs of values
}

// Len returns the number of all holders' values, or their costs.
func (s *Shared[H, K, V]) Len() int { return s.n }

// Of returns the values of a holder, which the caller must not change; nil: it has none.
func (s *Shared[H, K, V]) Of(h H) *Cache[K, V] {
	if o := s.holders[h]; o != nil {
		return &o.values
	}
	return nil
}

// Use returns a holder's value of k, which is then the newest.
func (s *Shared[H, K, V]) Use(h H, k K) (v V, ok bool) {
	o := s.holders[h]
	if o == nil {
		return v, false
	}
	return o.values.Use(k)
}

// Keep sets a holder's value of k, which is then the newest, and drops the oldest ones of holders that have most until
// at most limit are left. Of equals h gives way.
func (s *Shared[H, K, V]) Keep(h H, k K, v V, limit int) {
	o := s.holders[h]
	if o == nil {
		if s.holders == nil {
			s.holders = map[H]*owned[K, V]{}
		}
		o = new(owned[K, V])
		s.holders[h] = o
	}
	if last, ok := o.values.Peek(k); ok {
		s.add(o, -s.cost(last))
	}
	o.values.Put(k, v)
	s.add(o, s.cost(v))
	for s.n > max(limit, 0) {
		largest, has := h, o
		for other, x := range s.holders {
			if x.n > has.n {
				largest, has = other, x
			}
		}
		oldest, _, _ := has.values.Oldest()
		s.Delete(largest, oldest)
	}
}

// Delete drops a holder's value of k, if it is there.
func (s *Shared[H, K, V]) Delete(h H, k K) {
	o := s.holders[h]
	if o == nil {
		return
	}
	v, ok := o.values.Peek(k)
	if !ok {
		return
	}
	s.add(o, -s.cost(v))
	if o.values.Delete(k); o.values.Len() == 0 {
		delete(s.holders, h)
	}
}

func (s *Shared[H, K, V]) add(o *owned[K, V], cost int) {
	o.n += cost
	s.n += cost
}

func (s *Shared[H, K, V]) cost(v V) int {
	if s.Cost == nil {
		return 1
	}
	return s.Cost(v)
}
