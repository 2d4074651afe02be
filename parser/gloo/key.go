package gloo

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
)

// A tensor's key is made of the job, the addresses of both ends without ports, the connection's number among the job's
// with these addresses, the direction, and the properties that tell the tensor from others of a training step: the
// lengths of its collective's messages and its ordinal among collectives with equal lengths, or its bucket in
// DistributedDataParallel's layout. Both proxies see the same of all of these.

// Such a key ends with its connection. The message of a bucket also has an origin where the process shows which bucket
// it is, and which rank sends it, and so which part of the bucket. torchft makes its process groups anew while its
// buckets stay.

// ends identifies the two addresses of a connection, and which of them sends, whichever side has connected.
func ends(c parser.Conn, side parser.Side) uint64 {
	from, to := c.Client.Addr().As16(), c.Server.Addr().As16()
	if side == parser.Server {
		from, to = to, from
	}
	return xxhash.Sum64(append(from[:], to[:]...))
}

// seed identifies one direction of a connection.
func seed(c parser.Conn, side parser.Side) uint64 {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(c.Job)))
	b = append(b, c.Job...)
	client, server := c.Client.Addr().As16(), c.Server.Addr().As16()
	b = append(append(b, client[:]...), server[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Number))
	return xxhash.Sum64(append(b, byte(side)))
}

// The second word of a key says how its other words are made.
const (
	keyOfStep    = 1 + iota // lengths, ordinal, epoch, message
	keyOfBucket             // model, bucket, bytes, message
	keyOfMessage            // length, ordinal, epoch
	keyOfCall               // ordinal of the bucket's memory, bytes, message
	keyOfPart               // side, tag or ordinal of the all-reduce, message of its first phase
	keyOfOrigin             // bucket, bytes, ranks, rank, message
)
