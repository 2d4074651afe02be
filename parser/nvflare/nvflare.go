// Package nvflare finds the arrays in connections of NVIDIA FLARE (https://github.com/NVIDIA/NVFlare), from clients to
// the server's port.
//
// # Wire
//
// Everything travels in SFM frames (nvflare/fuel/f3/sfm in its source), over plain TCP, one after the other; over gRPC,
// as field 2 of the messages of /streamer.Streamer/Stream; or over WebSocket, one in each binary message, which clients
// mask. Integers are big-endian.
//
//	4 bytes  length of the frame
//	2 bytes  length of the header
//	1 byte   type: 1 data, 4 HELLO (the client's first), 5 READY (the server's first), 6 PING, 7 PONG
//	9 bytes  reserved, flags, application, stream and sequence
//	...      the header, a map in MessagePack
//	...      the payload
//
// Messages travel as streams, in frames that have the keys sm__id (number of the stream of this sender), sm__os
// (offset), sm__sz (bytes in all), sm__ch and sm__tp (channel and topic) and sm__ri (the same in a request and its
// answer). Frames of a stream may come out of order, and come again where they are not acknowledged within 5 s. The
// content of a stream is sections: a marker (100 a value in MessagePack, 101 a text, 102 bytes), a type, a length of 8
// bytes, and, but for the first kind, an id of 16 bytes.
//
// An array is announced in the answer to server_command:get_task or in server_command/submit_update, which name kind
// and arrays of a DXO, and a ref_id for the arrays of NumPy, of PyTorch, or for each of both, whose items then have the
// same names. Who wants the arrays asks download_service__download with that ref_id; the answer has in "data" a file
// for each, a ZIP file with a .npy file, or safetensors. Files of 10 MiB or more are a section of their own.
// TensorServerStreamer and TensorClientStreamer send safetensors of several arrays without being asked, as
// safetensors_blob of aux_communication/ObjectStreamer.Request, which does not say what the arrays are.
//
// # Tensors
//
// The elements of a file that lie in one frame are a tensor, so that frames which are out of order, or come again, are
// known. Elements that two frames share are opaque. So that they cross once, all tensors that lose nothing are said to
// repeat; and of a frame that comes before the bytes which would tell its content, all bytes are. Over gRPC the
// elements of a frame that must not change, or are state in a ZIP file, are several tensors, of 64 KiB each. Tensors
// have a Base: the same for all clients that are sent a model, and for arrays from a client the client's own. Weights
// that a client sends have the model's Base as their Model, by which they are predicted.
//
//   - Floats are a [tensor.Gradient] if a client has announced them in submit_update with the kind WEIGHT_DIFF, which
//     the server adds to its weights ([tensor.ByUpdate]), and [tensor.State] if the kind is WEIGHTS. A frame that comes
//     again is Exact: the receiver drops it, so that it must not count for error feedback.
//   - Arrays in ZIP files have CRC32 set, since their reader compares it: a wrong one makes a client ask for its task
//     again, without end.
//   - Everything else is Exact, such as other kinds, content that a filter has processed, files that were not
//     announced, and arrays beside the data of the DXO, such as SCAFFOLD's control variates in its meta.
//
// # Limits
//
// With the WebSocket driver clients mask their bytes, and tensors have a Mask. The elements of a frame that a client
// has cut into several of WebSocket are opaque where they cross a cut, since each part has a mask of its own. Frames
// that are encrypted (cn__secure, cn__encrypted) are opaque.
//
// Memory is bounded: the last 64 announcements of at most 2^12 arrays and 2^12 requests for all jobs together, and for
// each direction the last 16 streams; of a gRPC connection the first two calls are read.
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

// Traits: cells connect again after a lost connection, and send the same arrays.
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
