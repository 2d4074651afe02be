// Package grpc reads the messages of gRPC calls (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md), for
// the parsers of frameworks that use them.
//
// # Wire
//
// A call is an HTTP/2 stream (package http2) whose request has a content-type that begins with application/grpc; its
// :path names the method, as "/package.Service/Method". The content of each direction of the stream is a sequence of
// messages, over the edges of DATA frames:
//
//	1 byte    1 if the message is compressed, else 0
//	4 bytes   length, big-endian
//	...       the message, usually a Protocol Buffer
//
// # Use
//
// A framework's parser is a [Service] for each connection, given to [New], which returns the connection's parsers:
//
//	Service.Speaks(path)        of the first call: is this connection the framework's at all?
//	Service.Call(path, stream)  a request has begun; it returns a Call, or nil if nobody reads its messages
//	Call.Message(head)          a message begins: its side, its length; it returns a Message, or nil if nobody reads it
//	Message.Next(b, sure)       the message's next bytes, as they come, for it to classify; nothing is buffered
//	Message.End()               its last byte has come
//
// A Call outlives its request: facts of the request are kept there for the response, which is matched to it by the
// stream. The two directions of a connection are parsed concurrently, so a Call must lock the state that the messages
// of both sides share. A request reaches its receiver through both proxies before there can be a response, so the facts
// of a unary call's request are there when its response begins; of streaming calls that is not sure.
//
// Messages of several calls interleave, frame by frame. Tensors that do so must have distinct keys (see
// [tensor.Tensor]); a Service that cannot name them otherwise asks [Stream.Over].
//
// Compressed messages are opaque, and so are streams that are not gRPC, streams with a flag that gRPC does not have,
// calls whose path has more than 512 bytes, and calls beyond the limits of package http2.
package grpc
