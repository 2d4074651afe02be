//go:build !purego

package magnitude

import "github.com/gradproxy/gradproxy/codecs/internal/asm"

// selectTiles does what selectPart does for the first i values, of which it selects n.
func selectTiles(keys []uint32, values []float32, v Values, from, t uint32) (n, i int) {
	tier := asm.Use()
	if i = v.Len() &^ 31; i == 0 || tier < asm.AVX2 {
		return 0, 0
	}
	keys, values = keys[:i], values[:i]
	switch {
	case tier < asm.AVX512 && v.Add == nil:
		n = selectAVX2(&keys[0], &values[0], &v.X[0], i, from, t)
	case tier < asm.AVX512:
		n = selectSumsAVX2(&keys[0], &values[0], &v.X[0], &v.Add[:i][0], i, from, t)
	case v.Add == nil:
		n = selectAVX512(&keys[0], &values[0], &v.X[0], i, from, t)
	default:
		n = selectSumsAVX512(&keys[0], &values[0], &v.X[0], &v.Add[:i][0], i, from, t)
	}
	return n, i
}
