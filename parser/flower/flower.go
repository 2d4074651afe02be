// Package flower finds the arrays in connections of Flower (https://flower.ai), from clients or SuperNodes to a server
// or SuperLink.
//
// # Wire
//
// Flower sends arrays in calls whose messages are Protocol Buffers, over gRPC (package grpc), and for releases from
// 1.40 on in the bodies of HTTP/1.1 requests and responses. Field numbers stand for paths: 4.1.1 is field 1 of field 1
// of field 4.
//
//	FlowerService/Join                 start_server and start_client, every release: one stream of messages for each client.
//	                                   From the server 4.1.1 (fit) and 5.1.1 (evaluate), from the client 4.2.1 (result of a fit)
//	                                   and 3.2.1 (initial parameters) are .npy files
//	Fleet/PullTaskIns, PushTaskRes     1.2 to 1.14: a RecordSet in field 8 or 9 of a Task, or a message of Join in 101 or 102
//	Fleet/PullMessages, PushMessages   1.15 to 1.18: a RecordSet in 2.2; from 1.20 on 3 has trees of the objects to come
//	Fleet/PullObject, PushObject       from 1.20 on: an object
//	POST /v1/fleet/pull-object, ...    from 1.40 on: the same messages, without gRPC's prefix
//
// A RecordSet has arrays in 1.2.2.4, each a .npy file (flwr.proto in Flower's source: message.proto, recordset.proto or
// recorddict.proto).
//
// An object is its class, the ids of its children, the length of its body, a zero byte and the body; its id is the
// SHA-256 of all of that. An array's bytes are objects of class "ArrayChunk", each a part of a .npy file. Both ends
// compare id and content.
//
// # Tensors
//
// The elements of each .npy file, or of its part in an object, are a tensor. Everything else is opaque.
//
//   - Arrays in messages of Join and in RecordSets are [tensor.State]: Flower sends whole models, no gradients. Base is
//     the same for the model that a server sends, to any client, and a result that a client sends back has it as its
//     Model, so that each result is predicted by the model that the client was sent. The parameters with which a client
//     has the training begin have the model's Base, since the server sends them as the first model.
//   - Arrays in objects are [tensor.Exact], since a changed bit makes the receiver drop the whole message. Base is the
//     array's place in the message, as the tree of objects told it before: the same in each round and, from the server,
//     for all nodes. From a node, Base is the node's, so that a chunk which it sends again, since no answer came in
//     time, is the value that the peer has, and Model is the Base of the array that it was sent. An id tells the place
//     of an object's bytes, and is their ID. An array of the same name at another place of a tree has another Base.
//   - Tensors are said to repeat where the same bytes may cross again: a model goes to several clients, a call of the
//     Fleet API whose answer does not come is made again, by gRPC or by Flower (flwr/supercore/retry), and nodes pull
//     the same objects to judge a model and to train it. Results in a Join are not: the call is one stream, and gRPC
//     sends nothing again once it has an answer, and a client that connects anew is asked for another result.
//
// # Limits
//
// Release 1.19, which sends an array as one object, is not read: its arrays are opaque. Nor are messages in a
// GrpcAdapter, nor the calls between a SuperLink and its apps, which stay within a host. HTTP bodies must have a
// length. Arrays are read only if they are .npy files of little-endian numbers.
//
// Memory is bounded: for all jobs together the places of the last 2^15 objects, and the types of the last 2^13 arrays;
// of a gRPC connection 64 calls are read at a time.
package flower

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
)

// Protocol is Flower. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct{ facts facts }

var _ parser.Protocol = (*Protocol)(nil)

// String returns "flower".
func (*Protocol) String() string { return "flower" }

// Traits: nodes connect again, and go on with the same arrays.
func (*Protocol) Traits() parser.Traits { return parser.Traits{Reconnects: true} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := newConnection(&p.facts, c)
	h := &exchange{conn: x}
	client, server := grpc.New(&service{conn: x})
	return parser.First(client, &httpStream{exchange: h, side: parser.Client}), parser.First(server, &httpStream{exchange: h, side: parser.Server})
}
