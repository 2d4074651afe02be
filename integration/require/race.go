//go:build race

package require

// Race reports whether the race detector is on. It makes loops over values ten times as slow, and it looks for threads
// in each other's memory and misplaced pointers, which do not depend on the number of values or steps: tests draw
// fewer. And sync.Pool drops some of its values, so that allocations cannot be counted.
const Race = true
