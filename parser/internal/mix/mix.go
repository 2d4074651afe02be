// Package mix makes the keys of tensors, which both proxies must make alike.
package mix

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Words returns a 64-bit hash of words, which is never 0.
func Words(words ...uint64) uint64 {
	var buf [64]byte
	b := buf[:0]
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if h := xxhash.Sum64(b); h != 0 {
		return h
	}
	return 1
}
