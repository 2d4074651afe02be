package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A bitRate is a flag in bits per second: a number with an optional k, M or G, and an optional bit or bit/s behind it,
// such as 50M or 1.5Gbit/s.
type bitRate int64

func (r *bitRate) Set(s string) error {
	number, scale := strings.TrimSuffix(strings.TrimSuffix(s, "/s"), "bit"), 1.0
	for _, unit := range []struct {
		letter string
		scale  float64
	}{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if n, ok := strings.CutSuffix(number, unit.letter); ok {
			number, scale = n, unit.scale
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if v = math.Round(v * scale); err != nil || !(v >= 0 && v < 1<<62) {
		return fmt.Errorf("%q is not a rate: write bits per second, such as 50M or 1.5Gbit/s", s)
	}
	*r = bitRate(v)
	return nil
}

func (r *bitRate) String() string {
	for _, unit := range []struct {
		letter string
		scale  bitRate
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if *r != 0 && *r%unit.scale == 0 {
			return fmt.Sprintf("%d%sbit/s", *r/unit.scale, unit.letter)
		}
	}
	return fmt.Sprintf("%dbit/s", *r)
}

// Type is the value's name in the help text.
func (r *bitRate) Type() string { return "rate" }
