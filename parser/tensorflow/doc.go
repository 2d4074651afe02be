// Package tensorflow finds the tensors in the gRPC connections of a TensorFlow cluster: parameter servers of TensorFlow
// 1 and 2, and collectives over gRPC (MultiWorkerMirroredStrategy). It was tried on TensorFlow 2.21.
//
// # Wire
//
// Every process of a cluster has one gRPC server, in plain text (packages http2 and grpc). Messages are Protocol
// Buffers (tensorflow/core/protobuf/worker.proto, eager_service.proto). Tensors are pulled: the process that needs one
// asks for it, and the tensor is in the response.
//
//	WorkerService/RecvTensor        request   1 step, 2 rendezvous key, 7 request id
//	                                response  1 tensor {1 type, 2 shape {2 dimension {1 size}}, 4 content, 5 floats, 6 doubles}, 2 no value
//	WorkerService/RecvBuf           request   2 key of the buffer, 3 bytes, 8 from, 9 to, 10 request id, 11 incarnation of from
//	                                response  4 {2 {1 piece of the content, repeated}}
//	WorkerService/CompleteInstance  request   1 name, 2 collective, 3 type, 4 shape, 5 group, 7 instance
//	WorkerService/RegisterGraph     request   1 session, 2 graph {1 node}; response: 1 handle
//	WorkerService/RunGraph          request   1 handle, 2 step, 3 arguments, 8 session
//	EagerService/Enqueue, StreamingEnqueue  request  1 context, 3 {2 operation {2 name, 8 step}, 3 {2 tensor}, 4 function}
//	EagerService/RunComponentFunction  request  1 context, 2 operation
//	MasterService/RunStep           request   2 fed {2 tensor}; response: 1 fetched {2 tensor}
//
// A rendezvous key is "from;incarnation;to;edge;frame:iteration", of devices, the number that the sending process drew
// when it began, and an edge of the graph. All sizes and forms of these messages are fixed by the framework's own
// encoder; other fields are passed over.
//
// # Tensors
//
// The content of a RecvTensor response is a tensor if its length is that of its type and shape, which come before it.
// The pieces of a RecvBuf response are together one tensor. Other calls carry arguments, results and initial values,
// whose contents of 256 bytes or more are [tensor.Exact]. A packed list of floats or doubles in place of a content is a
// tensor too, in any call, if it has as many elements as the shape. Strings, other lists, lists that end in a value for
// all the rest, and contents that come before their type are opaque. DATA frames cut a tensor anywhere; Hold is 0 until
// the message's last frame.
//
// # Roles
//
// Direction proves nothing: initial values, metrics and learning rates go to a parameter server as gradients do. The
// graph is the proof. The part of it that a server runs is sent to that server, and says which tensors it receives and
// for what. The step's number joins a tensor to the graphs that run:
//
//   - the gradient's input of an optimizer's operation (Apply..., SparseApply...) or of an accumulator:
//     [tensor.Gradient], by [tensor.ByUpdate]
//   - 4 KiB or more that are scaled and subtracted from rows (ScatterSub): a Gradient, whose content is to be checked
//   - 4 KiB or more that are added to a variable or subtracted from one, or part of the value that renews it: a
//     Gradient if the configuration says that sums are, since sums of metrics look the same
//   - an assigned value, and a variable that is read, or rows of it: [tensor.State]
//   - integers, and the answer to a request that was made before: Exact
//   - any other use, several of these uses at once, and a tensor without a graph: [tensor.Unknown]
//
// Rows of a gradient have Keys, but the rows' numbers come in a message of their own, before the rows or after them. So
// no row has a residual, and rows travel losslessly.
//
// Collectives have no graph on the wire. CompleteInstance tells type and shape. A broadcast is Exact; a sum of floats
// from its third call on is, if the configuration says that sums are gradients, a Gradient in the ring's first pass and
// an [tensor.Aggregate] in its second.
//
// # Facts
//
// A process registers a graph on one connection and uses it on others, and does not send it again after a reconnect. So
// facts belong to the job, or to the peer where no job is configured. A proxy that starts in the middle of a job knows
// no graphs, and calls nothing a gradient.
//
// A Key is made of the devices, the sender's incarnation, the edge, type, shape and, where it is known, the function. A
// Base leaves out the receiver.
//
// # Limits
//
// Memory is bounded whatever a peer sends: for all jobs together eight graphs under way of 16 MiB each, 32 MiB of
// graphs' edges, 2^14 steps, requests and instances, 2^12 collectives; of one message 2^10 functions. When facts must
// go, the oldest facts of the peer that has most of them are forgotten first. From one edge at most 2^14 inputs are
// followed. Of a TensorFlow 1 graph only the parts that cross the link are seen: the parts for servers at another site
// than the process that registers them. In a loop each iteration has keys of its own.
package tensorflow
