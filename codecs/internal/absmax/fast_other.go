//go:build !amd64 || purego

package absmax

// There are no kernels.

func of([]float32) (bits uint32, n int)             { return 0, 0 }
func ofSum(_, _ []float32) (bits uint32, n int)     { return 0, 0 }
func eachOfSum(_, _, _ []float32, _ int) (done int) { return 0 }
