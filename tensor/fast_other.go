//go:build !amd64 || purego

package tensor

// There are no kernels.

func (s *sums) tiles(_, _ []float32) bool { return false }
