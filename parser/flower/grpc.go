package flower

import (
	"strings"

	"github.com/gradproxy/gradproxy/parser/grpc"
)

// A service reads the calls of a gRPC connection.
type service struct{ conn *connection }

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool {
	return strings.HasPrefix(path, "/flwr.proto.FlowerService/") || strings.HasPrefix(path, "/flwr.proto.Fleet/")
}

// Call implements grpc.Service.
func (s *service) Call(path string, _ *grpc.Stream) grpc.Call {
	if c := s.conn.open(path); c != nil {
		return grpcCall{c}
	}
	return nil
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
