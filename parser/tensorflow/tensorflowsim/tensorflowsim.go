// Package tensorflowsim makes the messages of a TensorFlow cluster, as TensorFlow 2.21 writes them, and has processes
// that exchange them by gRPC: for tests of parsers and proxies, and for demos. A process is a [Process] to others, and
// they are each a [Peer] to it. Package tensorflow describes the messages.
//
// Left out are the calls GetStatus, CreateWorkerSession and CleanupGraph, which carry no tensors, the computing of
// graphs, and the rest of gRPC: windows that grow with the bandwidth, and the pings that measure it. net/http chooses
// the sizes of frames and the order of headers.
package tensorflowsim

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// WorkerService begins the paths of the methods that move tensors.
const WorkerService = "/tensorflow.WorkerService/"

// Devices of a cluster.
const (
	Server = "/job:ps/replica:0/task:0/device:CPU:0"
	Worker = "/job:worker/replica:0/task:0/device:CPU:0"
)

// WorkerDevice returns the device of a worker; that of task 0 is Worker.
func WorkerDevice(task int) string {
	return fmt.Sprintf("/job:worker/replica:0/task:%d/device:CPU:0", task)
}

// Sub appends field n, a message or bytes, to b.
func Sub(b []byte, n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), content)
}

// Text appends field n, a string, to b.
func Text(b []byte, n protowire.Number, s string) []byte { return Sub(b, n, []byte(s)) }

// Number appends field n, an integer, to b.
func Number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// Fixed appends field n, a fixed64, to b.
func Fixed(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), v)
}

// Key returns the rendezvous key of an edge between two devices.
func Key(from, to, edge string) string { return from + ";00112233445566ff;" + to + ";" + edge + ";0:0" }

// Shape returns a TensorShapeProto.
func Shape(dims ...uint64) (b []byte) {
	for _, n := range dims {
		b = Sub(b, 2, Number(nil, 1, n))
	}
	return b
}

// Tensor returns a TensorProto as RecvTensor sends it. dtype is TensorFlow's number of the type.
func Tensor(dtype uint64, content []byte, dims ...uint64) []byte {
	b := Number(nil, 1, dtype)
	if len(dims) > 0 {
		b = Sub(b, 2, Shape(dims...))
	}
	return Sub(b, 4, content)
}

// sendStart is the time at which a tensor was sent, in microseconds.
const sendStart = 1700000000000000

// Request returns a RecvTensorRequest.
func Request(step uint64, key string, id uint64) []byte {
	return Number(Text(Number(nil, 1, step), 2, key), 7, id)
}

// Response returns a RecvTensorResponse.
func Response(tensor []byte) []byte { return Sub(Number(nil, 3, sendStart), 1, tensor) }

// BufferRequest returns a RecvBufRequest from the worker to the server.
func BufferRequest(key string, size int, id uint64) []byte {
	b := Text(Text(Number(Text(nil, 2, key), 3, uint64(size)), 8, Worker), 9, Server)
	return Number(Number(b, 10, id), 11, 5)
}

// pieceLen is the length of the pieces of a buffer, in bytes.
const pieceLen = 4096

// BufferResponse returns a RecvBufResponse.
func BufferResponse(content []byte) []byte {
	var pieces []byte
	for len(content) > 0 {
		n := min(pieceLen, len(content))
		pieces = Sub(pieces, 1, content[:n])
		content = content[n:]
	}
	extra := Sub(Text(nil, 1, "type.googleapis.com/tensorflow.RecvBufRespExtra"), 2, pieces)
	return Number(Sub(nil, 4, extra), 5, sendStart)
}

// Instance returns a CompleteInstanceRequest of float32 values.
func Instance(typ, group, instance uint64, name string, dims ...uint64) []byte {
	b := Number(Number(Text(nil, 1, name), 2, typ), 3, 1)
	return Number(Number(Sub(b, 4, Shape(dims...)), 5, group), 7, instance)
}

// A Node is a node of a graph. From, To and Edge are the attributes of _Send and _Recv, else "".
type Node struct {
	Name, Op       string
	Inputs         []string
	From, To, Edge string
}

// Proto returns a NodeDef, in which an attribute of another kind comes first.
func (n Node) Proto() []byte {
	b := Text(Text(nil, 1, n.Name), 2, n.Op)
	for _, in := range n.Inputs {
		b = Text(b, 3, in)
	}
	b = Sub(b, 5, Sub(Text(nil, 1, "T"), 2, Number(nil, 6, 1)))
	for _, a := range [][2]string{{"send_device", n.From}, {"recv_device", n.To}, {"tensor_name", n.Edge}} {
		if a[1] != "" {
			b = Sub(b, 5, Sub(Text(nil, 1, a[0]), 2, Text(nil, 2, a[1])))
		}
	}
	return b
}

// Nodes returns a message with the nodes in field n: a GraphDef with n 1, a part of a FunctionDef with 3.
func Nodes(n protowire.Number, nodes []Node) (b []byte) {
	for _, x := range nodes {
		b = Sub(b, n, x.Proto())
	}
	return b
}

// Session is a session of a cluster that has one.
const Session = "session"

// RegisterGraph returns a RegisterGraphRequest, whose response is Handle.
func RegisterGraph(session string, nodes []Node) []byte {
	return Sub(Text(nil, 1, session), 2, Nodes(1, nodes))
}

// Handle returns a RegisterGraphResponse: a session has one graph.
func Handle() []byte { return Text(nil, 1, "handle") }

// RunGraph returns a RunGraphRequest that runs the registered graph of a session.
func RunGraph(session string, step uint64) []byte {
	return Text(Number(Handle(), 2, step), 8, session)
}
