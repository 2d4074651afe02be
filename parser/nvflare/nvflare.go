// Package nvflare finds the arrays in connections of NVIDIA FLARE (https://github.com/NVIDIA/NVFlare) that clients open
// to the server.
//
// # Wire
//
// Everything travels in SFM frames (nvflare/fuel/f3/sfm in NVFlare's source). Over plain TCP one frame follows the
// other. Over gRPC a frame is field 2 of a message of /streamer.Streamer/Stream. Over WebSocket a frame is a binary
// message, which clients mask. Integers are big-endian.
//
//	4 bytes  length of the frame
//	2 bytes  length of the header
//	1 byte   type: 1 data, 4 HELLO (the client's first), 5 READY (the server's first), 6 PING, 7 PONG
//	9 bytes  reserved, flags, application, stream and sequence
//	...      the header, a map in MessagePack
//	...      the payload
//
// A message travels as a stream. The headers of its frames have the keys sm__id (the sender's number of the stream),
// sm__os (offset), sm__sz (bytes of the whole stream), sm__ch and sm__tp (channel and topic) and sm__ri (the same in a
// request and its answer). The frames of a stream may come out of order, and a frame comes again after 5 seconds
// without acknowledgement. The content of a stream is a sequence of sections. A section has a marker (100 a value in
// MessagePack, 101 a text, 102 bytes), a type, a length of 8 bytes and, unless the marker is 100, an id of 16 bytes.
//
// Arrays are announced in the answer to server_command:get_task and in server_command/submit_update. Both name the kind
// and the arrays of a DXO, with one ref_id for its NumPy arrays and one for its PyTorch tensors; where it has both, the
// items of the two may have the same names. The other side downloads the arrays: it sends the ref_id to
// download_service__download, and the answer has in "data" a file for each array, either a ZIP file with a .npy file or
// safetensors. A file of 10 MiB or more is a section of its own. TensorServerStreamer and TensorClientStreamer send
// safetensors of several arrays without a request, as safetensors_blob of aux_communication/ObjectStreamer.Request,
// which says nothing of the meaning of the arrays.
//
// # Tensors
//
// A tensor is the elements of one file in one frame, so that a frame is understood out of order and when it comes
// again. An element that two frames share is opaque. Tensors have Repeats set, so that bytes which come again cross
// once. All bytes of a frame are such tensors if the frame comes before the bytes that would tell its content. Over
// gRPC, elements that must not change, and state in a ZIP file, are cut into tensors of 64 KiB. The Base of an array
// from the server is the same for all clients, and the Base of an array from a client is the client's own. Weights from
// a client have the Base of the server's weights as their Model, which predicts them.
//
//   - Floats are a [tensor.Gradient] if a client has announced them in submit_update with the kind WEIGHT_DIFF, which
//     the server adds to its weights ([tensor.ByUpdate]). They are [tensor.State] if the kind is WEIGHTS. A frame that
//     comes again is Exact: the receiver drops it, so it must not count for error feedback.
//   - Arrays in ZIP files have CRC32 set, since their reader compares it. After a wrong CRC-32 a client would ask for
//     its task again, without end.
//   - Everything else is Exact: other kinds, content that a filter has processed, files that were not announced, and
//     arrays outside of the DXO's data, such as SCAFFOLD's control variates in its meta.
//
// # Limits
//
// Over WebSocket clients mask their bytes, and tensors have a Mask. A client may cut a frame into several WebSocket
// frames; a tensor that crosses a cut is opaque, since each part has a mask of its own. Encrypted frames (cn__secure,
// cn__encrypted) are opaque.
//
// Memory is bounded. All jobs together have the last 64 announcements, of at most 2^12 arrays each, and the last 2^12
// requests. Each direction has the last 16 streams. Of a gRPC connection two calls are read at a time.
package nvflare

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
)

// Protocol is NVIDIA FLARE. The zero Protocol is ready for use; it must not be copied after first use.
type Protocol struct{ facts facts }

var _ parser.Protocol = (*Protocol)(nil)

// String returns "nvflare".
func (*Protocol) String() string { return "nvflare" }

// Traits says that connections come again: NVFlare's cells reconnect after a lost connection, and send the same arrays.
func (*Protocol) Traits() parser.Traits { return parser.Traits{Reconnects: true} }

// New returns the parsers of a connection's two directions.
func (p *Protocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	x := newConnection(&p.facts, c)
	client, server := grpc.New(&service{conn: x})
	w := new(upgrade)
	frames := func(side parser.Side) sfm { return sfm{direction: direction{conn: x, side: side}} }
	return parser.First(client, &webSocket{frames: frames(parser.Client), upgrade: w}, &plain{frames: frames(parser.Client)}),
		parser.First(server, &webSocket{frames: frames(parser.Server), upgrade: w}, &plain{frames: frames(parser.Server)})
}
