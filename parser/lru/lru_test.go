package lru

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// keys returns the keys from the newest to the oldest, and checks that both directions and the map agree.
func keys(t *testing.T, c *Cache[int, string]) (list []int) {
	t.Helper()
	for k, v := range c.FromNewest() {
		if got, ok := c.Peek(k); !ok || got != v {
			t.Fatalf("key %d has %q in the order and %q, %v in the map", k, v, got, ok)
		}
		list = append(list, k)
	}
	var back []int
	for k := range c.FromOldest() {
		back = append(back, k)
	}
	if slices.Reverse(back); !slices.Equal(list, back) || len(list) != c.Len() {
		t.Fatalf("%v from the newest, %v from the oldest reversed, %d in all", list, back, c.Len())
	}
	if k, _, ok := c.Oldest(); ok != (len(list) > 0) || ok && k != list[len(list)-1] {
		t.Fatalf("the oldest is %d, %v; want the last of %v", k, ok, list)
	}
	return list
}

func TestOrderOfUse(t *testing.T) {
	var c Cache[int, string]
	if _, ok := c.Use(1); ok || len(keys(t, &c)) != 0 {
		t.Error("the zero Cache is not empty")
	}
	c.Delete(1)
	for k, v := range []string{"a", "b", "c", "d"} {
		c.Put(k, v)
	}
	if v, ok := c.Use(1); !ok || v != "b" {
		t.Errorf("key 1 has %q, %v", v, ok)
	}
	c.Peek(0)
	if got := keys(t, &c); !slices.Equal(got, []int{1, 3, 2, 0}) {
		t.Errorf("order %v", got)
	}
	c.Put(0, "e") // replaced, and used
	if v, _ := c.Peek(0); v != "e" {
		t.Errorf("a replaced value is %q", v)
	}
	c.Delete(3)
	if got := keys(t, &c); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("order %v", got)
	}
}

// The loop from the oldest may drop values as it goes.
func TestDropWhileIterating(t *testing.T) {
	var c Cache[int, string]
	for k := range 10 {
		c.Put(k, "")
	}
	for k := range c.FromOldest() {
		if k == 8 {
			break
		}
		if k%2 == 0 {
			c.Delete(k)
		}
	}
	if got := keys(t, &c); !slices.Equal(got, []int{9, 8, 7, 5, 3, 1}) {
		t.Errorf("order %v", got)
	}
}

// Such a loop sees each value once, whatever the order in which they were put and used.
func TestDropWhileIteratingInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 1000 {
		var c Cache[int, string]
		for k := range 8 {
			c.Put(k, "")
		}
		want, kept := r.Perm(8), []int(nil)
		for _, k := range want {
			c.Use(k)
		}
		var got []int
		for k := range c.FromOldest() {
			if got = append(got, k); r.IntN(2) == 0 {
				c.Delete(k)
			} else {
				kept = append(kept, k)
			}
		}
		if slices.Reverse(kept); !slices.Equal(got, want) || !slices.Equal(keys(t, &c), kept) {
			t.Fatalf("round %d: the loop saw %v of %v, %v of %v are left", round, got, want, keys(t, &c), kept)
		}
	}
}

// Against a slice that is searched.
func TestAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c Cache[int, string]
	var model []int // from the newest
	for range 10000 {
		k := r.IntN(20)
		at := slices.Index(model, k)
		switch r.IntN(4) {
		case 0:
			c.Delete(k)
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			}
		case 1:
			c.Put(k, "")
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			}
			model = slices.Insert(model, 0, k)
		default:
			if _, ok := c.Use(k); ok != (at >= 0) {
				t.Fatalf("key %d is found: %v", k, ok)
			}
			if at >= 0 {
				model = slices.Insert(slices.Delete(model, at, at+1), 0, k)
			}
		}
		if got := keys(t, &c); !slices.Equal(got, model) {
			t.Fatalf("order %v, want %v", got, model)
		}
	}
}

// With Keep alone a Cache has the last limit keys that were put or used, and no others.
func TestKeepUsed(t *testing.T) {
	const limit = 10
	var c Cache[int, int]
	for i := range 1000 {
		c.Keep(i, i, limit)
		c.Use(3)
		if n := c.Len(); n > limit {
			t.Fatalf("%d entries after %d", n, i)
		}
		for k := max(0, i-8); k <= i; k++ { // with key 3, the last 10 or fewer
			if _, ok := c.Peek(k); !ok {
				t.Fatalf("key %d is lost after %d", k, i)
			}
		}
	}
	if v, ok := c.Use(3); !ok || v != 3 {
		t.Error("what is used all the time is lost")
	}
	if _, ok := c.Use(500); ok {
		t.Error("nothing is forgotten")
	}
	c.Keep(999, 1, limit)
	if v, _ := c.Use(999); v != 1 {
		t.Error("a value stays as it was")
	}
}

// Keep drops the oldest values, also where Put has left more than the limit.
func TestKeep(t *testing.T) {
	var c Cache[int, string]
	for k := range 5 {
		c.Put(k, "")
	}
	for _, step := range []struct {
		key, limit int
		want       []int
	}{
		{1, 5, []int{1, 4, 3, 2, 0}},
		{5, 5, []int{5, 1, 4, 3, 2}},
		{6, 3, []int{6, 5, 1}},
		{1, 3, []int{1, 6, 5}},
		{7, 0, nil},
		{8, -1, nil},
	} {
		c.Keep(step.key, "", step.limit)
		if got := keys(t, &c); !slices.Equal(got, step.want) {
			t.Errorf("key %d, limit %d: %v, want %v", step.key, step.limit, got, step.want)
		}
	}
}
