// Package lru orders values by their last use, so that the one that was used least recently can be found and dropped: a
// [Cache] finds them by their keys, a [Shared] has several holders' values under one limit, and a [List] has the order
// alone, of values that its user keeps and finds.
package lru

import "iter"

// A Cache maps keys to values and keeps them in the order of their last use. It has no limit of its own: the caller
// drops the oldest, or names a limit to Keep. The zero Cache is empty. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	places  map[K]int32 // in entries, by key
	entries []entry[K, V]
	order   List
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int { return len(c.entries) }

// Use returns the value of k, which is then the newest.
func (c *Cache[K, V]) Use(k K) (v V, ok bool) {
	at, ok := c.places[k]
	if !ok {
		return v, false
	}
	c.order.Use(at)
	return c.entries[at].value, true
}

// Peek returns the value of k and leaves the order as it is.
func (c *Cache[K, V]) Peek(k K) (v V, ok bool) {
	if at, ok := c.places[k]; ok {
		return c.entries[at].value, true
	}
	return v, false
}

// Put sets the value of k, which is then the newest.
func (c *Cache[K, V]) Put(k K, v V) {
	if at, ok := c.places[k]; ok {
		c.entries[at].value = v
		c.order.Use(at)
		return
	}
	if c.places == nil {
		c.places = map[K]int32{}
	}
	c.places[k] = c.order.Add()
	c.entries = append(c.entries, entry[K, V]{k, v})
}

// Keep sets the value of k, which is then the newest, and drops the oldest ones until at most limit are left.
func (c *Cache[K, V]) Keep(k K, v V, limit int) {
	for c.Put(k, v); c.Len() > max(limit, 0); {
		c.remove(c.order.Oldest())
	}
}

// Delete drops k, if it is there.
func (c *Cache[K, V]) Delete(k K) {
	if at, ok := c.places[k]; ok {
		c.remove(at)
	}
}

// remove drops the value at a place. The last one takes its place.
func (c *Cache[K, V]) remove(at int32) {
	c.order.Remove(at)
	delete(c.places, c.entries[at].key)
	last := len(c.entries) - 1
	if int(at) != last {
		c.entries[at] = c.entries[last]
		c.places[c.entries[at].key] = at
	}
	c.entries[last] = entry[K, V]{}
	if c.entries = c.entries[:last]; last == 0 {
		c.entries = nil
	}
}

// Oldest returns the value that was used least recently.
func (c *Cache[K, V]) Oldest() (k K, v V, ok bool) {
	at := c.order.Oldest()
	if at == None {
		return k, v, false
	}
	e := &c.entries[at]
	return e.key, e.value, true
}

// FromNewest iterates from the value that was used most recently to the oldest. The loop must not change the Cache.
func (c *Cache[K, V]) FromNewest() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for at := c.order.Newest(); at != None; at = c.order.Older(at) {
			if e := &c.entries[at]; !yield(e.key, e.value) {
				return
			}
		}
	}
}

// FromOldest iterates from the value that was used least recently to the newest. The loop may delete the value that it
// was given, and must not change the Cache otherwise.
func (c *Cache[K, V]) FromOldest() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for at := c.order.Oldest(); at != None; {
			next := c.order.Newer(at)
			if e := &c.entries[at]; !yield(e.key, e.value) {
				return
			}
			if int(next) == len(c.entries) { // it was the last one, and has taken the place of the value that the loop has deleted
				next = at
			}
			at = next
		}
	}
}
