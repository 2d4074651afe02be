//go:build !race

package wansim

// fastest is the highest rate that links are tested at, in Mbit/s.
const fastest = 1000
