package codecs

import "github.com/gradproxy/gradproxy/tensor"

// Fused is a ValueEncoder that offers error feedback in one pass over memory. Package feedback uses it where an encoder
// has it, and else takes several passes; the bits must be the same either way.
type Fused interface {
	ValueEncoder

	// AppendFeedback appends the encoding of the sums src[i]+residual[i], rounded to float32, to dst, and sets each
	// residual[i] to its sum less the value that the decoder delivers as an element of type d. It neither modifies nor
	// retains src, and does not retain residual. On ErrUnsuited it returns dst as it was; residual and the encoder's
	// state are as before.
	AppendFeedback(dst []byte, src, residual []float32, d tensor.DType) ([]byte, error)
}
