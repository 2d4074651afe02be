//go:build !purego

package magnitude

import "github.com/gradproxy/gradproxy/codecs/internal/asm"

// selectTiles does what selectPart does for the first i values, of which it selects n.
func selectTiles(keys []uint32, values, x []float32, from, t uint32) (n, i int) {
	tier := asm.Use()
	if i = len(x) &^ 31; i == 0 || tier < asm.AVX2 {
		return 0, 0
	}
	keys, values = keys[:i], values[:i]
	if tier < asm.AVX512 {
		return selectAVX2(&keys[0], &values[0], &x[0], i, from, t), i
	}
	return selectAVX512(&keys[0], &values[0], &x[0], i, from, t), i
}
