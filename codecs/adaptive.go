package codecs

// Adaptive is a ValueEncoder that can be made to send fewer or more values from block to block, which Decoders need not
// know. Package feedback does so where the codec's Traits have a ResidualRatio.
type Adaptive interface {
	ValueEncoder

	// SetSparsity sets 3LC's multiplier s for the encodings that follow: 1 <= s < 2. The residual grows about as
	// s/(2-s).
	SetSparsity(s float32)
}
