//go:build !amd64 || purego

package countsketch

// There are no kernels.

func signsTiles(_, _, _ []uint16, _ uint16) (n int)                               { return 0 }
func insertTiles(_, _ []float32, _ []uint16, _ int, _, _ uint64, _ order) (n int) { return 0 }
func queryTiles([]int32, []float32, []uint16, int, uint64, uint64) (n int)        { return 0 }
func mediansTiles([]float32, *[MaxRows][]int32, int) (n int)                      { return 0 }
