//go:build !linux

package app

// setNarrow does nothing: on this system it has not been tried.
func setNarrow(uintptr, bool) bool { return false }

// setWide does nothing: no socket is narrow.
func setWide(uintptr) {}
