// Package lru orders values by their last use, so that the one that was used least recently can be found and dropped.
package lru

import "iter"

// A Cache maps keys to values and keeps them in the order of their last use. It has no limit of its own: the caller drops
// the oldest, or names a limit to Keep. The zero Cache is empty. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	entries map[K]*entry[K, V]
	root    entry[K, V] // of a ring: root.older is the newest entry, root.newer the oldest
}

type entry[K comparable, V any] struct {
	newer, older *entry[K, V]
	key          K
	value        V
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int { return len(c.entries) }

// Use returns the value of k, which is then the newest.
func (c *Cache[K, V]) Use(k K) (v V, ok bool) {
	e := c.entries[k]
	if e == nil {
		return v, false
	}
	if c.root.older != e {
		e.unlink()
		c.link(e)
	}
	return e.value, true
}

// Peek returns the value of k and leaves the order as it is.
func (c *Cache[K, V]) Peek(k K) (v V, ok bool) {
	if e := c.entries[k]; e != nil {
		return e.value, true
	}
	return v, false
}

// Put sets the value of k, which is then the newest.
func (c *Cache[K, V]) Put(k K, v V) {
	if e := c.entries[k]; e != nil {
		e.value = v
		c.Use(k)
		return
	}
	if c.entries == nil {
		c.entries = map[K]*entry[K, V]{}
		c.root.newer, c.root.older = &c.root, &c.root
	}
	e := &entry[K, V]{key: k, value: v}
	c.entries[k] = e
	c.link(e)
}

// Keep sets the value of k, which is then the newest, and drops the oldest ones until at most limit are left.
func (c *Cache[K, V]) Keep(k K, v V, limit int) {
	for c.Put(k, v); c.Len() > max(limit, 0); {
		oldest, _, _ := c.Oldest()
		c.Delete(oldest)
	}
}

// Delete drops k, if it is there.
func (c *Cache[K, V]) Delete(k K) {
	if e := c.entries[k]; e != nil {
		e.unlink()
		delete(c.entries, k)
	}
}

// Oldest returns the value that was used least recently.
func (c *Cache[K, V]) Oldest() (k K, v V, ok bool) {
	if len(c.entries) == 0 {
		return k, v, false
	}
	e := c.root.newer
	return e.key, e.value, true
}

// FromNewest iterates from the value that was used most recently to the oldest. The loop must not change the Cache.
func (c *Cache[K, V]) FromNewest() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := c.root.older; e != nil && e != &c.root; e = e.older {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// FromOldest iterates from the value that was used least recently to the newest. The loop may delete the value that it was
// given, and must not change the Cache otherwise.
func (c *Cache[K, V]) FromOldest() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := c.root.newer; e != nil && e != &c.root; {
			next := e.newer
			if !yield(e.key, e.value) {
				return
			}
			e = next
		}
	}
}

// link makes e the newest.
func (c *Cache[K, V]) link(e *entry[K, V]) {
	e.newer, e.older = &c.root, c.root.older
	e.older.newer, c.root.older = e, e
}

func (e *entry[K, V]) unlink() { e.newer.older, e.older.newer = e.older, e.newer }
