//go:build !amd64 || purego

package magnitude

// There are no kernels.

func selectTiles(_ []uint32, _ []float32, _ Values, _, _, _ uint32) (n, i int) { return 0, 0 }

func sampleAll(_ []float32, _ Values, _ int) bool { return false }

func counts([]float32) bool                   { return false }
func countTiles([]float32, uint32) (n, i int) { return 0, 0 }
