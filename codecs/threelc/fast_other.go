//go:build !amd64 || purego

package threelc

// There are no kernels.

func tile() int                                                              { return 0 }
func quantizeTiles([]byte, []float32, uint32) (j int)                        { return 0 }
func quantizeSumTiles(_ []byte, _, _ []float32, _ uint32, _ float32) (j int) { return 0 }
func shortenTiles(_, _ []byte) (w, i, run int)                               { return 0, 0, 0 }
func unpackTiles([]float32, []byte, int, int, uint32) (n int)                { return 0 }
func expandTiles(_ *room, _ []byte, at, _ int) (used, end int)               { return 0, at }
func unpackRuns([]float32, []byte, uint32) (used, done, run int)             { return 0, 0, 0 }
