package ddp

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
)

// verifyShapes makes sure that all ranks have the same model as rank 0 (utils.hpp, verify_params_across_processes).
func (r *Replica) verifyShapes() error {
	const count = 8 // bytes
	counts := make([]byte, count*r.group.Size())
	mine := counts[count*r.group.Rank():][:count]
	binary.LittleEndian.PutUint64(mine, uint64(len(r.params)))
	if err := r.group.AllGather(counts).Wait(); err != nil {
		return fmt.Errorf("all-gather of the number of parameters: %w", err)
	}
	for rank := range r.group.Size() {
		if n := binary.LittleEndian.Uint64(counts[count*rank:]); n != uint64(len(r.params)) {
			return fmt.Errorf("rank %d has %d parameters, rank %d has %d", rank, n, r.group.Rank(), len(r.params))
		}
	}
	own := shapes(r.params)
	root := bytes.Clone(own)
	if err := r.group.Broadcast(root, 0).Wait(); err != nil {
		return fmt.Errorf("broadcast of the shapes: %w", err)
	}
	if !bytes.Equal(root, own) {
		return fmt.Errorf("rank %d has parameters of other shapes than rank 0", r.group.Rank())
	}
	return nil
}

// shapes is the message that tells parameters' shapes: for each its sizes, then its strides in elements, as int64s.
func shapes(params []train.Param) (b []byte) {
	for _, p := range params {
		for _, size := range p.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(size))
		}
		for i := range p.Shape {
			stride := 1
			for _, size := range p.Shape[i+1:] {
				stride *= size
			}
			b = binary.LittleEndian.AppendUint64(b, uint64(stride))
		}
	}
	return b
}

// broadcastValues sets all parameters to rank 0's, packed into messages of about broadcastLimit (comm.cpp,
// broadcast_coalesced).
func (r *Replica) broadcastValues() error {
	for _, group := range cut(r.sizes(inOrder(len(r.params))), broadcastLimit) {
		var b []byte
		for _, p := range group {
			b = encode(b, r.params[p].Value)
		}
		if err := r.group.Broadcast(b, 0).Wait(); err != nil {
			return err
		}
		for _, p := range group {
			decode(r.params[p].Value, b)
			b = b[float32Len*len(r.params[p].Value):]
		}
	}
	return nil
}

// rebuild cuts the buckets anew, in the order in which rank 0's gradients were ready in the first step (reducer.cpp,
// rebuild_buckets and sync_bucket_indices).
func (r *Replica) rebuild() error {
	groups := cut(r.sizes(r.order), firstBucket, bucketLimit)
	indices, counts := layout(groups)
	if err := r.group.Broadcast(indices, 0).Wait(); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint32(indices[len(indices)-4:]); n != uint32(len(groups)) {
		counts = make([]byte, 4*n)
	}
	if err := r.group.Broadcast(counts, 0).Wait(); err != nil {
		return err
	}
	groups, err := parseLayout(indices, counts, len(r.params))
	if err != nil {
		return err
	}
	r.setBuckets(groups)
	return nil
}

// layout is the two messages that tell the buckets: all parameters, bucket after bucket, and the number of buckets;
// then the number of parameters of each; as int32s.
func layout(groups [][]int) (indices, counts []byte) {
	for _, group := range groups {
		for _, p := range group {
			indices = binary.LittleEndian.AppendUint32(indices, uint32(p))
		}
		counts = binary.LittleEndian.AppendUint32(counts, uint32(len(group)))
	}
	return binary.LittleEndian.AppendUint32(indices, uint32(len(groups))), counts
}

// parseLayout reads the messages that layout made.
func parseLayout(indices, counts []byte, params int) (groups [][]int, err error) {
	seen := make([]bool, params)
	for ; len(counts) > 0; counts = counts[4:] {
		n := int(binary.LittleEndian.Uint32(counts))
		if n == 0 || 4*(n+1) > len(indices) {
			return nil, fmt.Errorf("rank 0 announces a bucket of %d parameters", n)
		}
		var group []int
		for ; n > 0; n, indices = n-1, indices[4:] {
			p := int(binary.LittleEndian.Uint32(indices))
			if p >= params || seen[p] {
				return nil, fmt.Errorf("rank 0 announces parameter %d of %d, or announces it twice", p, params)
			}
			seen[p] = true
			group = append(group, p)
		}
		groups = append(groups, group)
	}
	if len(indices) != 4 {
		return nil, fmt.Errorf("rank 0 leaves %d parameters without a bucket", len(indices)/4-1)
	}
	return groups, nil
}
