//go:build !linux

package site

// memoryAllowed knows no limit here.
func memoryAllowed() memoryLimit { return unlimited }
