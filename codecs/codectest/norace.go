//go:build !race

package codectest

const race = false
