//go:build race

package gloo

// raced says that the race detector makes everything ten times as slow.
const raced = true
