//go:build linux

package main

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// A likeness is how much the sums of a job resemble the weights before its first step.
type likeness struct {
	gradients float64 // greatest magnitude of a cosine of a gradient
	first     float64 // least cosine of the first sum of something else; NaN: there is none
	smallest  float64 // the same of all such sums
	other     string  // name of the something else
}

// likenessOf compares all ranks' parts of all sums of a recording, quarter by quarter, as two ranks send them.
func likenessOf(r *recording) likeness {
	l := likeness{first: math.NaN(), smallest: math.NaN()}
	weights, quarter := floats(r.first), ((r.elements-1)/4+1+3)&^3
	for k, name := range r.names {
		smallest := math.Inf(1)
		for rank := range r.ranks {
			input := floats(r.input(k, rank))
			for from := 0; from < r.elements; from += quarter {
				to := min(from+quarter, r.elements)
				c := cosine(input[from:to], weights[from:to])
				if name == "gradient" {
					l.gradients = max(l.gradients, math.Abs(c))
				}
				smallest = min(smallest, c)
			}
		}
		if name == "gradient" {
			continue
		}
		if l.other == "" {
			l.other, l.first, l.smallest = name, smallest, smallest
		}
		l.smallest = min(l.smallest, smallest)
	}
	return l
}

// cosine returns the cosine of two vectors; 0 if one is zero.
func cosine(a, b []float32) float64 {
	var product, x, y float64
	for i := range a {
		product += float64(a[i]) * float64(b[i])
		x += float64(a[i]) * float64(a[i])
		y += float64(b[i]) * float64(b[i])
	}
	if x == 0 || y == 0 {
		return 0
	}
	return product / math.Sqrt(x*y)
}

// likenesses prints the table of the recordings that have the first weights.
func likenesses(files []string) error {
	out := program.NewTable("job", "#gradients, at most", "something else", "#its first sum, at least", "#all, at least")
	defer func() { fmt.Print(out) }() // also of the recordings before one that cannot be read
	for _, f := range files {
		r, err := open(f)
		if err != nil {
			return err
		}
		if r.first == nil {
			return fmt.Errorf("%s has no first weights: record anew, into an empty folder", f)
		}
		l := likenessOf(r)
		first, smallest := "", ""
		if l.other != "" {
			first, smallest = fmt.Sprintf("%.2f", l.first), fmt.Sprintf("%.2f", l.smallest)
		}
		out.Row(r.job, fmt.Sprintf("%.2f", l.gradients), l.other, first, smallest)
	}
	return nil
}
