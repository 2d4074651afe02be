// Package paramserver trains as MXNet's kvstore "dist_sync" does: workers push gradients to servers, which add them up,
// change the weights by them and send these back. It speaks MXNet's wire byte for byte, on the nodes of package
// pslitesim; real workers and servers of MXNet 1.9 can take part. Comments refer to files of its sources
// (github.com/apache/mxnet, 1.9.1, src/kvstore).
//
// An array has a key, a small number. The first push of a key, by worker 0 alone, is its initial value; after a barrier
// of the workers all pull it. From then on each worker pushes a gradient at each step, a server waits for all workers'
// gradients, and the answers are the new weights (or, if it was given no optimizer, the sum). Large arrays are cut over
// all servers. Only float32 is supported, and neither sparse nor compressed gradients.
//
// Commands, which every server gets and answers:
//
//	3  the servers work in synchronous mode; worker 0, before all else
//	0  the optimizer, a pickled Python object; every worker, before the first key
//	2  the end; worker 0
//
// Sums are formed in the order of the workers' ranks, whichever came first, so that a training ends with the same bits
// every time.
package paramserver

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// A Config says where a node is, and how arrays are cut.
type Config struct {
	pslitesim.Config

	// BigArray is the number of elements from which an array is cut over all servers, the same on all workers; 0:
	// 1,000,000 (MXNET_KVSTORE_BIGARRAY_BOUND).
	BigArray int
}

// Commands to servers (kvstore_dist_server.h, CommandType).
const (
	commandOptimizer = 0
	commandStop      = 2
	commandSync      = 3
)

// headDense is the head of data messages: dense float32 (kvstore_dist_server.h, GetCommandType).
const headDense = 0

const (
	float32Len = 4 // bytes
	keyLen     = 8
	lenLen     = 4
)

// RunScheduler is the scheduler of a job: it brings the nodes together and returns when all have left, or when ctx is
// done.
func RunScheduler(ctx context.Context, c Config) error {
	n, err := pslitesim.Start(ctx, pslitesim.Scheduler, c.Config, nil)
	if err != nil {
		return err
	}
	return n.Finish()
}

// decode reads little-endian float32s, as many as dst has.
func decode(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[i*float32Len:]))
	}
}

// encode writes src into b as decode reads it, float32Len bytes for each value.
func encode(b []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(b[i*float32Len:], math.Float32bits(v))
	}
}

// add adds little-endian float32s to sum.
func add(sum []float32, src []byte) {
	for i := range sum {
		sum[i] += math.Float32frombits(binary.LittleEndian.Uint32(src[i*float32Len:]))
	}
}
