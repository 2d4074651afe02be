//go:build !linux

package vm

// realTime does nothing: the guest's clock may wait for the machine's other work.
func realTime() {}
