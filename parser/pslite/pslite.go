// Package pslite finds the tensors in connections of ps-lite, the parameter server under Apache MXNet's dist_*
// key-value stores and, in a dialect of its own, under BytePS. It reads the ZeroMQ transport; RDMA is not supported.
//
// # Wire
//
// A connection is ZMTP 3.0 or 3.1 with the NULL mechanism (https://rfc.zeromq.org/spec/23, libzmq). Each side sends a
// greeting of 64 bytes and a READY command, then frames. Integers of ZMTP are big-endian, integers of ps-lite
// little-endian.
//
//	greeting   FF, 8 bytes, 7F, major, minor, mechanism (20 bytes, zero-padded), as-server, 31 bytes
//	frame      flags (1 MORE, 2 LONG, 4 COMMAND), size (1 byte, with LONG 8), body
//	READY      05 "READY", then properties: length (1 byte), name, length (4 bytes), value
//	message    frames, all but the last with MORE
//
// Every node accepts connections on a ROUTER socket that only receives, and opens one from a DEALER socket to each
// peer, that only sends; READY names the sender, "ps" and its id (1 the scheduler, 8 + 2r server r, 9 + 2r worker r).
// So a request and its answer travel on two connections. The frames of a message are (ps-lite, src/zmq_van.h):
//
//	0 meta     kind and types: a Protocol Buffer (src/meta.proto), or in BytePS a C structure (src/meta.h of
//	           bytedance/ps-lite)
//	1 keys     64-bit integers, of the receiving or answering server's range
//	2 vals     the values, in the order of the keys: the payload
//	3 lens     32-bit integers, the length of each value; absent from requests to pull, and where all are equal
//
// Control messages, commands and acknowledgements have the first frame only. In BytePS a server's answers return on the
// worker's own connection, behind one frame more, the server's name (bytedance/ps-lite, src/zmq_van.h).
//
// # Tensors
//
// The vals frame of every message is a tensor if it is not empty: Size is the frame's, Hold the rest of it, since a
// sender writes it whole. The keys of rows that follow the array's own key are an Exact tensor beside it, and so are,
// from 256 bytes on, the keys after the first one and the lengths; Index tells these tensors from payloads. All other
// bytes are opaque. After bytes that the parser does not understand everything is opaque.
//
// MXNet (src/kvstore/kvstore_dist.h, kvstore_dist_server.h) and BytePS (byteps/common/common.cc) send vals as bytes.
// The meta's head says how to read them: it pairs the request type, dense, row-sparse or compressed, with the element
// type (head.go). Vals of another type belong to an application whose conventions are not known: they are Unknown.
//
// # Roles
//
//   - A push is a [tensor.Gradient], except the pushes that begin a key: the first push of rank 0 in MXNet holds the
//     initial weights, and is [tensor.Exact]. No field says so. In BytePS the first push of every worker makes room on
//     the server, and a broadcast of weights is the second push of a key that has no third (broadcast_parameters in
//     byteps/torch): both are Exact. A push is certainly a gradient if the parser has seen a worker give the servers an
//     optimizer. Without an optimizer a job may average weights, and the content must be checked ([tensor.ByWire]).
//   - An answer to a pull is [tensor.State] if the parser has seen a worker give the servers an optimizer (command 0).
//     Otherwise it is the sum of the round's gradients, an [tensor.Aggregate]. It is Unknown if the parser has not seen
//     the job's beginning, where the command stands. In BytePS it is an Aggregate.
//   - A push of floats by another application is a Gradient if the job's configuration says that its sums are, and if
//     all its values are of one length; the first that rank 0 sends to a server is Exact, since it may be the initial
//     weights.
//   - Values that the framework has coded already (MXNet's 2-bit codes, a key with a compressor in BytePS), integers,
//     and a push that is sent a second time (PS_RESEND) are Exact.
//
// A key begins again with each life of a worker: a process that counts its requests from the start again, at a server
// that listens where it did (lives.go).
//
// # Jobs
//
// The connections of a job through one peer share facts: which node is a worker and which a server, and the commands.
// Messages of this site's nodes count for all peers (own.go). The scheduler's table of nodes (ADD_NODE) joins
// connections through the peer by the address that they go to. Without a table all connections of a configured job are
// joined, and other connections stand alone. A table that differs, or that a node gets once more on another connection,
// begins a new run.
//
// # Keys
//
// A tensor's Key is made of the job, direction, worker, customer and the server's key, which names the server as well
// since each has a range of its own; where rows or many keys are sent, of the set of these keys too. Rows have as Keys
// the Key of their array's index with that worker, whatever its rows are this time: row i of the payload, which is as
// long as all others, is the one that element i of the index names. So have the gradients of many keys that an
// application pushes: their index is the whole frame of keys, and one Key stands for whatever keys that worker sends to
// that server.
//
// An answer's Base is the same for all workers: under dist_sync all get the same bytes, and else similar bytes. Keys
// have a Base for each array, number and worker, since within a step a worker pulls, is sent and pushes the same rows;
// lengths have one for each array and number. Rows and the values of many keys have one for each set of keys. Except
// for lengths, a Base is given only while the array's keys come again (reuse score, reuse.go), so that no proxy holds
// values that are sent once. Pushes have none.
//
// # Limits
//
// Where the scheduler's table is not seen, the workers' ids at the other end of answers are not known, and the
// connection's addresses and number stand for them. BytePS before 2020 used Protocol Buffers and is taken for MXNet. A
// job that broadcasts weights with BytePS twice under one name is not told from one that trains. ZMTP 2 and mechanisms
// with encryption are not read.
//
// Memory is bounded whatever a peer sends: 2 MiB for a direction while a large meta comes, and for all jobs together
// the last 2^17 keys pushed, 2^14 indices, 2^14 lives, 2^13 addresses and, without configuration, 2^5 jobs, of at most
// 2^10 nodes. When an entry must go, it is one of the peer that has most entries, and of these the entry that has not
// been used for longest. So a peer that keeps to its share loses nothing to another peer. A key that was forgotten
// begins again, exactly, and answers of a job that was forgotten are Unknown.
package pslite

import "github.com/gradproxy/gradproxy/parser"

// Protocol is ps-lite over ZeroMQ. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct{ facts facts }

var _ parser.Protocol = (*Protocol)(nil)

// String returns "pslite".
func (*Protocol) String() string { return "pslite" }

// Traits: libzmq connects again after a lost connection, and the job goes on with the same keys.
func (*Protocol) Traits() parser.Traits { return parser.Traits{Reconnects: true} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := p.facts.open(c)
	return &stream{conn: x, side: parser.Client}, &stream{conn: x, side: parser.Server}
}
