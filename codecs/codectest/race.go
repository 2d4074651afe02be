//go:build race

package codectest

// Race reports whether the race detector is on. It makes loops over values ten times as slow, and what it looks for, threads in
// each other's memory and misplaced pointers, does not depend on how many values there are: tests draw fewer. And sync.Pool
// drops some of what is put into it, so that allocations cannot be counted.
const Race = true
