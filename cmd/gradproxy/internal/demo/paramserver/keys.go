package paramserver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// defaultBigArray is MXNet's default of MXNET_KVSTORE_BIGARRAY_BOUND.
const defaultBigArray = 1_000_000

// A part is the part of an array at one server.
type part struct {
	server   int    // rank
	key      uint64 // on the wire
	from, to int    // elements
}

// split returns the parts of an array of n elements, in order (kvstore_dist.h, EncodeDefaultKey).
func split(key, n, servers, bigArray int) []part {
	if n < cmp.Or(bigArray, defaultBigArray) {
		server := key * 9973 % servers
		return []part{{server, firstKey(server, servers) + uint64(key), 0, n}}
	}
	parts := make([]part, servers)
	each := float64(n) / float64(servers)
	for i := range parts {
		parts[i] = part{i, firstKey(i, servers) + uint64(key), int(math.Round(each * float64(i))), int(math.Round(each * float64(i+1)))}
	}
	return parts
}

// firstKey returns the least key that a server has (postoffice.cc, GetServerKeyRanges).
func firstKey(server, servers int) uint64 {
	return math.MaxUint64 / uint64(servers) * uint64(server)
}

// message returns the data frames of a push or an answer: keys, values, lengths.
func (p part) message(vals []byte) [][]byte {
	return [][]byte{
		binary.LittleEndian.AppendUint64(nil, p.key),
		vals,
		binary.LittleEndian.AppendUint32(nil, uint32(len(vals))),
	}
}

// request returns the data frames of a pull.
func (p part) request() [][]byte {
	return [][]byte{binary.LittleEndian.AppendUint64(nil, p.key), nil}
}

// types returns the types of the first n data frames.
func types(n int) []int32 {
	return []int32{pslitesim.TypeUint64, pslitesim.TypeOther, pslitesim.TypeInt32}[:n]
}

// open checks the data frames of a message, three or in a pull two, and returns its key and its values.
func open(m *pslitesim.Message, frames int) (key uint64, vals []byte, err error) {
	if len(m.Data) != frames || len(m.Data[0]) != keyLen {
		return 0, nil, fmt.Errorf("message of %d data frames, want %d and one key", len(m.Data), frames)
	}
	key, vals = binary.LittleEndian.Uint64(m.Data[0]), m.Data[1]
	if m.Head != headDense {
		return 0, nil, fmt.Errorf("key %#x: head %d, want %d: only dense float32 is supported", key, m.Head, headDense)
	}
	if frames == 3 && (len(m.Data[2]) != lenLen || uint64(binary.LittleEndian.Uint32(m.Data[2])) != uint64(len(vals)) || len(vals)%float32Len != 0) {
		return 0, nil, fmt.Errorf("key %#x: %d bytes of values with lengths % x", key, len(vals), m.Data[2])
	}
	return key, vals, nil
}
