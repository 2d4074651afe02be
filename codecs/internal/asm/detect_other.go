//go:build !amd64 || purego

package asm

func detect() Tier { return Plain }
