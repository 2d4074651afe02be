package huffman

import (
	"cmp"
	"slices"
)

// A leaf is a symbol and its frequency; lengths puts the length of its word in weight's place.
type leaf struct {
	weight uint64
	symbol uint16
}

// lengths sorts leaves and replaces their weights by the lengths of their words. It is Moffat and Katajainen's
// algorithm: the tree grows in the place of the leaves that are in it already.
func lengths(a []leaf) {
	slices.SortFunc(a, func(x, y leaf) int {
		return cmp.Or(cmp.Compare(x.weight, y.weight), -cmp.Compare(x.symbol, y.symbol))
	})
	n := len(a)
	if n <= 1 {
		for i := range a {
			a[i].weight = 0
		}
		return
	}
	// First pass: a[next] becomes the weight of a tree, and the two that it is made of point to it.
	root, leaf := 0, 0
	for next := range n - 1 {
		sum := uint64(0)
		for range 2 {
			if leaf >= n || root < next && a[root].weight < a[leaf].weight {
				sum += a[root].weight
				a[root].weight = uint64(next)
				root++
			} else {
				sum += a[leaf].weight
				leaf++
			}
		}
		a[next].weight = sum
	}
	// Second pass: from the root down, pointers become depths.
	a[n-2].weight = 0
	for i := n - 3; i >= 0; i-- {
		a[i].weight = a[a[i].weight].weight + 1
	}
	// Third pass: at each depth, a node that is no tree is a leaf; the last leaves are the heaviest.
	trees, free, depth := n-2, 1, uint64(0)
	for at := n - 1; free > 0; depth++ {
		inner := 0
		for trees >= 0 && a[trees].weight == depth {
			inner++
			trees--
		}
		for ; free > inner; free-- {
			a[at].weight = depth
			at--
		}
		free = 2 * inner
	}
}

const peekBits = 11 // of the table for short words: 8 KiB

// assign makes the words and tables of c, of the lengths that words have; sorted has the symbols in any order. It
// reports whether the words fill the code space.
func (c *Code) assign() bool {
	slices.SortFunc(c.sorted, func(x, y uint16) int {
		return cmp.Or(cmp.Compare(c.words[x].len, c.words[y].len), cmp.Compare(x, y))
	})
	if len(c.sorted) == 0 {
		return false
	}
	c.longest = uint(c.words[c.sorted[len(c.sorted)-1]].len)
	c.ends, c.starts = resize(c.ends, int(c.longest)+1), resize(c.starts, int(c.longest)+1)
	code, at := uint64(0), 0 // the next word, of n bits, and its place
	for n := range c.longest + 1 {
		code <<= 1
		c.starts[n] = at - int(code)
		for ; at < len(c.sorted) && uint(c.words[c.sorted[at]].len) == n; at++ {
			c.words[c.sorted[at]].bits = code
			code++
		}
		if code > 1<<n {
			return false
		}
		c.ends[n] = code << (c.longest - n)
	}
	c.fillShort()
	return code == 1<<c.longest
}

func (c *Code) fillShort() {
	c.peek = min(c.longest, peekBits)
	c.short = resize(c.short, 1<<c.peek)
	clear(c.short)
	for _, s := range c.sorted {
		w := c.words[s]
		if uint(w.len) > c.peek {
			break
		}
		room := c.peek - uint(w.len)
		from := w.bits << room
		same := c.short[from : from+1<<room]
		for i := range same {
			same[i] = entry{s, w.len, true}
		}
	}
}
