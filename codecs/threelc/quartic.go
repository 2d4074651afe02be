package threelc

// QuarticLen returns the number of bytes that the quartic encoding of n values takes.
func QuarticLen(n int) int { return quarticLen(n) }

// Quartic sets dst, which has QuarticLen(len(x)) bytes, to the quartic encoding (section 3.2) of x, without zero-run
// encoding. Each value of x is -M, 0 or M: for the paper's baseline that quantizes another way.
func Quartic(dst []byte, x []float32, M float32) { quantize(dst, x, threshold(M)) }

// Unquartic sets x, of at most 5·len(src) values, to the values of a quartic encoding: -M, 0 and M, M at least 0. It
// returns false if src is no quartic encoding of so many values.
func Unquartic(x []float32, src []byte, M float32) bool {
	for _, b := range src {
		if b >= firstRun {
			return false
		}
	}
	used, ok := unpack(x, src, M)
	return ok && used == len(src)
}
