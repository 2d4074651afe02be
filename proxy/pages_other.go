//go:build !linux

package proxy

// largePages returns v: there is nobody to ask here.
func largePages[T byte | float32](v []T) []T { return v }
