//go:build !race

package codectest

// Race reports whether the race detector is on.
const Race = false
