//go:build !amd64 || purego

package keys

// There are no kernels.

func quotientTiles(_ divisor, _ []uint32) (sum uint64, n int) { return 0, 0 }

func writeTiles(_ divisor, _ []byte, _ uint, _ []uint32) (end uint, n int, ok bool) {
	return 0, 0, false
}
