//go:build !linux

package residual

// largePages returns v: this system has no such request.
func largePages[T byte | float32](v []T) []T { return v }
