//go:build race

package gloo

// raced says that the race detector makes everything ten times as slow. Simulated jobs have one goroutine, in which it finds no race: jobs of
// two ranks pass through all code that it should see.
const raced = true
