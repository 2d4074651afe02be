package nvflaresim

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// Types of frames.
const (
	TypeData  = 1
	TypeHello = 4 // a client's first
	TypeReady = 5 // the server's first
)

// prefixLen is the length of the bytes before a frame's header.
const prefixLen = 16

// Frame returns a frame of a type.
func Frame(kind byte, header, payload []byte) []byte {
	b := make([]byte, 0, prefixLen+len(header)+len(payload))
	b = binary.BigEndian.AppendUint32(b, uint32(prefixLen+len(header)+len(payload)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	b = append(b, kind, 0, 0, 0, 0, 1, 0, 7, 0, 9)
	return append(append(b, header...), payload...)
}

// Greeting returns the first frame of a cell, HELLO or READY.
func Greeting(kind byte, cell string) []byte {
	return Frame(kind, nil, Pack(Map{"endpoint_name", cell, "timestamp", 1_790_000_000, "fqcn", cell}))
}

// DefaultChunk is how many bytes of a stream NVFlare puts into a frame, at most.
const DefaultChunk = 1 << 20

// A Sender makes the frames of the streams that a cell sends to another.
type Sender struct {
	Origin, Destination string // names of the two cells
	Chunk               int    // bytes of a stream in a frame; 0: DefaultChunk
	Last                int    // number of the last stream
}

// A Stream is a message between cells.
type Stream struct {
	Channel, Topic string
	Request        string // the same in a request and its answer
	Content        []byte
}

// Answer returns the stream that answers s.
func (s *Stream) Answer(content []byte) Stream {
	return Stream{Channel: answers, Topic: s.Channel + ":" + s.Topic, Request: s.Request, Content: content}
}

// Channels and topics.
const (
	answers    = "return_only"
	commands   = "server_command"
	getTask    = "get_task"
	submit     = "submit_update"
	downloads  = "download_service__"
	download   = "download_service__download"
	streaming  = "sm__STREAM"
	streamData = "sm__DATA"
	streamAck  = "sm__ACK"
)

// Frames returns the frames of the next stream. extra are more keys and values of their headers, in turn.
func (s *Sender) Frames(m Stream, extra ...any) (frames [][]byte) {
	s.Last++
	chunk := s.Chunk
	if chunk == 0 {
		chunk = DefaultChunk
	}
	for at := 0; at < len(m.Content); at += chunk {
		end := min(len(m.Content), at+chunk)
		state := 1 // more to come
		if end == len(m.Content) {
			state = 2
		}
		header := append(s.route(streamData), "sm__pe", "fobs", "cn__secure", false, "sm__ch", m.Channel, "sm__tp", m.Topic, "sm__ri", m.Request,
			"sm__id", s.Last, "sm__sq", at/chunk, "sm__os", at, "sm__sz", len(m.Content), "sm__dt", state, "sm__rs", m.Channel == answers)
		frames = append(frames, Frame(TypeData, Pack(append(header, extra...)), m.Content[at:end]))
	}
	return frames
}

// ack returns the frame that acknowledges a whole stream of the other cell.
func (s *Sender) ack(number, size int) []byte {
	return Frame(TypeData, Pack(append(s.route(streamAck), "sm__id", number, "sm__os", size)), nil)
}

// route returns the keys that every header of the sender has: names, and a token with its signature.
func (s *Sender) route(topic string) Map {
	return Map{"cn__origin", s.Origin, "cn__destination", s.Destination, "cn__from", s.Origin, "cn__to", s.Destination, "cn__channel", streaming, "cn__topic", topic,
		"cn__route", []any{[]any{s.Origin, 3}}, "__token__", signature(s.Origin)[:36], "__token_signature__", signature(s.Origin)}
}

// signature returns 344 characters, as an RSA signature of 256 bytes has, of a cell.
func signature(cell string) string {
	var b []byte
	for sum := sha256.Sum256([]byte(cell)); len(b) < 256; sum = sha256.Sum256(sum[:]) {
		b = append(b, sum[:]...)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// Section returns a section of a stream's content.
func Section(marker, kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{marker, kind}, uint64(len(body))), body...)
}

// Markers of sections.
const (
	MarkerValue = 100 // MessagePack
	MarkerText  = 101
	MarkerBytes = 102
)

const (
	sectionHead = 10 // bytes before a section's body
	idLen       = 16 // bytes before a text or a file in its section
)

// sections returns the bodies of the first section of each marker.
func sections(b []byte) (map[byte][]byte, error) {
	all := map[byte][]byte{}
	for len(b) > 0 {
		if len(b) < sectionHead || binary.BigEndian.Uint64(b[2:]) > uint64(len(b)-sectionHead) {
			return nil, errMessage
		}
		end := sectionHead + int(binary.BigEndian.Uint64(b[2:]))
		if _, ok := all[b[0]]; !ok {
			all[b[0]] = b[sectionHead:end]
		}
		b = b[end:]
	}
	return all, nil
}
