//go:build !amd64 || purego

package simd

func detect() Tier { return Plain }
