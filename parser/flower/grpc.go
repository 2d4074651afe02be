package flower

import (
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/parser/grpc"
)

// A service reads the calls of a gRPC connection.
type service struct {
	conn *connection
	live []*grpc.Stream // of calls that are read, and may not be over
}

// maxCalls bounds the calls of a connection that are read at a time.
const maxCalls = 64

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool {
	return strings.HasPrefix(path, "/flwr.proto.FlowerService/") || strings.HasPrefix(path, "/flwr.proto.Fleet/")
}

// Call implements grpc.Service.
func (s *service) Call(path string, stream *grpc.Stream) grpc.Call {
	c := s.conn.open(path)
	if c == nil {
		return nil
	}
	s.live = slices.DeleteFunc(s.live, (*grpc.Stream).Over)
	if len(s.live) >= maxCalls {
		return nil
	}
	s.live = append(s.live, stream)
	return grpcCall{c}
}

// A grpcCall is a call over gRPC.
type grpcCall struct{ *call }

// Message implements grpc.Call.
func (c grpcCall) Message(h grpc.Head) grpc.Message {
	if m := c.message(h.From, h.Len); m != nil {
		return grpcMessage{m}
	}
	return nil
}

// A grpcMessage is a message over gRPC.
type grpcMessage struct{ *message }

// End implements grpc.Message.
func (m grpcMessage) End() (payload bool) { return m.payload }

var _ grpc.Named = grpcMessage{}
