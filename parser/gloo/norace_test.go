//go:build !race

package gloo

const raced = false
