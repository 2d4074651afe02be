//go:build race

package codectest

// The race detector makes loops over values ten times as slow. What it looks for, threads in each other's memory and misplaced
// pointers, does not depend on how many values there are: the suite draws fewer.
const race = true
