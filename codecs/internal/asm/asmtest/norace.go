//go:build !race

package asmtest

const race = false
