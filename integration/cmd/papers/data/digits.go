package data

import (
	"math"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

// Digits returns the small images that the program has in itself: 1,442 to train on and 355 to test with.
func Digits() (train, test Images) {
	a, b := digits.Load()
	side := int(math.Sqrt(digits.Pixels))
	return Images{side, a.Images, a.Labels}, Images{side, b.Images, b.Labels}
}
