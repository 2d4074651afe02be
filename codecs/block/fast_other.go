//go:build !amd64 || purego

package block

// There are no kernels.

func quantize8Tiles([]byte, []float32, float32) (n int)                { return 0 }
func quantizeSum8Tiles(_ []byte, _, _ []float32, _, _ float32) (n int) { return 0 }
func dequantize8Tiles([]float32, []byte, float32) (n int)              { return 0 }
func quantize4Tiles([]byte, []float32, float32) (n int)                { return 0 }
func quantizeSum4Tiles(_ []byte, _, _ []float32, _, _ float32) (n int) { return 0 }
func dequantize4Tiles([]float32, []byte, float32) (n int)              { return 0 }
func quantizeSumBrainTiles(int, []byte, []float32, []float32, float32, float32) (ok bool) {
	return false
}
