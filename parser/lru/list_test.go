package lru

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A List keeps the order of a slice in which places are moved by hand, whatever is added, used and removed.
func TestListAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var l List
	var model []int32 // from the newest place to the oldest
	for step := range 20_000 {
		op := r.IntN(5)
		switch {
		case len(model) == 0 || op < 2 && len(model) < 50:
			if place := l.Add(); int(place) != len(model) {
				t.Fatalf("step %d: the new place is %d of %d", step, place, len(model))
			}
			model = slices.Insert(model, 0, int32(len(model)))
		case op < 4:
			place := int32(r.IntN(len(model)))
			l.Use(place)
			model = slices.Insert(slices.DeleteFunc(model, func(p int32) bool { return p == place }), 0, place)
		default:
			place, last := int32(r.IntN(len(model))), int32(len(model)-1)
			l.Remove(place)
			model = slices.DeleteFunc(model, func(p int32) bool { return p == place })
			if i := slices.Index(model, last); i >= 0 {
				model[i] = place
			}
		}
		var down, up []int32
		for p := l.Newest(); p != None; p = l.Older(p) {
			down = append(down, p)
		}
		for p := l.Oldest(); p != None; p = l.Newer(p) {
			up = append(up, p)
		}
		if slices.Reverse(up); !slices.Equal(down, model) || !slices.Equal(up, model) || l.Len() != len(model) {
			t.Fatalf("step %d: %v from the newest, %v from the oldest reversed, %d in all, want %v", step, down, up, l.Len(), model)
		}
	}
}
