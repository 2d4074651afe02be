//go:build !amd64 || purego

package tensor

// There are no kernels.

func (s *sums) tiles(_, _ []float32) bool           { return false }
func (s *sums) cutTiles(_ []float32, _ []byte) bool { return false }

func cutTiles([]byte, []float32) (n int) { return 0 }

func widenBrainTiles([]float32, []byte) (n int)          { return 0 }
func narrowBrainTiles([]byte, []float32, uint32) (n int) { return 0 }
func widenHalfTiles([]float32, []byte) (n int)           { return 0 }
func narrowHalfTiles([]byte, []float32, uint32) (n int)  { return 0 }
func roundBrainTiles([]float32) (n int)                  { return 0 }
func roundHalfTiles([]float32) (n int)                   { return 0 }
