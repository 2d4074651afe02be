//go:build !amd64 || purego

package lossless

// There are no kernels.

func splitFloat32Tiles(_, _, _, _ []byte) (n int) { return 0 }
func joinFloat32Tiles(_, _, _, _ []byte) (n int)  { return 0 }
func splitFloat16Tiles(_, _, _ []byte) (n int)    { return 0 }
func joinFloat16Tiles(_, _, _ []byte) (n int)     { return 0 }
func packTiles(_, _, _ []byte, _ byte) (n int)    { return 0 }
func unpackTiles(_, _, _ []byte, _ byte) (n int)  { return 0 }
