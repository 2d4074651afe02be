//go:build !linux

package app

// setNarrow does nothing: on this system it has not been tried.
func setNarrow(uintptr, bool) error { return nil }
