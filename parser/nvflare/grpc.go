package nvflare

import (
	"slices"
	"sync/atomic"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// A service reads the calls of a gRPC connection.
type service struct {
	conn *connection
	live []*grpc.Stream // streams of the calls that are read, some of which may be over
}

// maxCalls bounds the calls of a connection that are read at the same time. A client makes one.
const maxCalls = 2

// streamPath is the path of NVFlare's one method. Each message of it has a frame.
const streamPath = "/streamer.Streamer/Stream"

// Speaks implements grpc.Service.
func (*service) Speaks(path string) bool { return path == streamPath }

// Call implements grpc.Service.
func (s *service) Call(path string, stream *grpc.Stream) grpc.Call {
	if s.live = slices.DeleteFunc(s.live, (*grpc.Stream).Over); path != streamPath || len(s.live) >= maxCalls {
		return nil
	}
	s.live = append(s.live, stream)
	c := &call{}
	for side := range c.sides {
		c.sides[side].frames = sfm{direction: direction{s.conn, parser.Side(side), true}}
		c.sides[side].held = &c.held[side]
	}
	return c
}

// A call is one call of the method.
type call struct {
	sides [2]messages
	held  [2]atomic.Int64 // bytes that each side held when it was last weighed
}

// Held implements http2.Sized.
func (c *call) Held() int { return int(c.held[parser.Client].Load() + c.held[parser.Server].Load()) }

// messages is one side of a call.
type messages struct {
	frames sfm
	scan   protoscan.Scanner
	broken bool // frames are no longer understood
	arrays int  // frames with elements before the current message
	held   *atomic.Int64
	weigh  int // segments of frames so far
}

// Message implements grpc.Call.
func (c *call) Message(h grpc.Head) grpc.Message {
	m := &c.sides[h.From]
	if m.broken = m.broken || h.Compressed || m.frames.inside(); m.broken {
		return nil
	}
	m.arrays = m.frames.arrays
	m.scan.Begin(field{}, h.Len)
	return message{m}
}

// A message is one message of a side.
type message struct{ *messages }

// Next implements grpc.Message.
func (m message) Next(b []byte, sure int) parser.Segment {
	if m.broken {
		return parser.Segment{Len: len(b)}
	}
	left := m.scan.Emitting()
	if left == 0 {
		n, _ := m.scan.Next(b)
		return parser.Segment{Len: n}
	}
	seg, err := m.frames.next(b[:min(len(b), left)], min(sure, left))
	if err != nil {
		m.broken = true
		return parser.Segment{Len: len(b)}
	}
	m.scan.Take(seg.Len)
	if m.weigh++; m.weigh%weighEvery == 0 || !m.frames.inside() {
		m.held.Store(int64(m.frames.Held() + m.scan.Held()))
	}
	return seg
}

// weighEvery is the number of segments of frames after which a side's state is weighed again. To weigh it takes a look
// at each stream.
const weighEvery = 16

// End implements grpc.Message.
func (m message) End() (payload bool) { return m.frames.arrays > m.arrays }

// A field chooses the field of a message that has the frame.
type field struct{}

// Field implements protoscan.Reader.
func (field) Field(p protoscan.Path, _ int) protoscan.Action {
	if p == 2 {
		return protoscan.Emit
	}
	return protoscan.Skip
}

// Kept implements protoscan.Reader.
func (field) Kept(protoscan.Path, []byte) {}

// Number implements protoscan.Reader.
func (field) Number(protoscan.Path, uint64) {}

// Leave implements protoscan.Reader.
func (field) Leave(protoscan.Path) {}
