//go:build race

package wansim

// fastest is a rate that links keep even where the race detector slows every access to memory down, in Mbit/s.
const fastest = 100
