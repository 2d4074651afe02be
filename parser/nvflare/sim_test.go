package nvflare

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

func fresh() parser.Protocol { return new(Protocol) }

// conn is the connection of a client on host 10.0.0.n.
func conn(n byte) parser.Conn {
	return parser.Conn{Job: "job", Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 40_000), Server: netip.MustParseAddrPort("10.0.1.1:8002")}
}

// pair is a key and a value of a map.
type pair struct {
	key   string
	value any
}

// pack writes a value in MessagePack: string, int, bool, []byte, []any or []pair.
func pack(v any) (b []byte) {
	switch v := v.(type) {
	case string:
		return append(binary.BigEndian.AppendUint16([]byte{0xda}, uint16(len(v))), v...)
	case int:
		return binary.BigEndian.AppendUint64([]byte{0xd3}, uint64(v))
	case bool:
		if v {
			return []byte{0xc3}
		}
		return []byte{0xc2}
	case []byte:
		return append(binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(len(v))), v...)
	case []any:
		b = binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(len(v)))
		for _, x := range v {
			b = append(b, pack(x)...)
		}
	case []pair:
		b = binary.BigEndian.AppendUint16([]byte{0xde}, uint16(len(v)))
		for _, x := range v {
			b = append(append(b, pack(x.key)...), pack(x.value)...)
		}
	default:
		panic(fmt.Sprintf("%T", v))
	}
	return b
}

// sectionOf is a section of a stream.
func sectionOf(marker, kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{marker, kind}, uint64(len(body))), body...)
}

// frame is an SFM frame.
func frame(kind byte, header, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(header)+len(payload)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	b = append(b, kind, 0, 0, 0, 0, 1, 0, 7, 0, 9)
	return append(append(b, header...), payload...)
}

// hello is the first frame of a side.
func hello(kind byte) []byte {
	b := append([]byte{0x82, 0xad}, "endpoint_name"...)
	return frame(kind, nil, append(append(b, pack("site-1.job")...), pack("timestamp")[:0]...))
}

// A job is one client's connection: the frames of both sides, in their order.
type job struct {
	cell   string
	chunk  int // bytes of a stream in a frame
	last   int // number of the last stream
	frames []simFrame
}

// A simFrame is a frame that a side sent.
type simFrame struct {
	from  parser.Side
	bytes []byte
}

func newJob(cell string, chunk int) *job {
	return &job{cell: cell, chunk: chunk, frames: []simFrame{{parser.Client, hello(typeHello)}, {parser.Server, hello(typeReady)}}}
}

// send sends a stream, and returns the numbers of its frames.
func (j *job) send(from parser.Side, channel, topic, request string, content []byte, extra ...pair) (numbers []int) {
	j.last++
	origin, destination := j.cell, "server.job"
	if from == parser.Server {
		origin, destination = destination, origin
	}
	for at := 0; at < len(content); at += j.chunk {
		payload := content[at:min(len(content), at+j.chunk)]
		header := pack(append([]pair{{"sm__pe", "fobs"}, {"cn__secure", false}, {"cn__origin", origin}, {"cn__destination", destination}, {"cn__route", []any{[]any{"x", 3}}},
			{"sm__ch", channel}, {"sm__tp", topic}, {"sm__ri", request}, {"sm__id", j.last}, {"sm__os", at}, {"sm__sz", len(content)}}, extra...))
		numbers = append(numbers, len(j.frames))
		j.frames = append(j.frames, simFrame{from, frame(typeData, header, payload)})
	}
	return numbers
}

// announce is the content of a stream that announces arrays.
func announce(kind, ref string, torch bool, names []string, meta ...pair) []byte {
	data := []pair{}
	for i, n := range names {
		data = append(data, pair{n, []pair{{"__fobs_type__", "numpy.ndarray"}, {"__fobs_data__", []pair{{"type", "ref"}, {"data", fmt.Sprintf("T%d", i)}}}}})
	}
	object := byte(announcesNumPy)
	if torch {
		object = announcesTorch
	}
	text := fmt.Sprintf(`{"fqcn": "x", "ref_id": "%s"}`, ref)
	return append(sectionOf(markerValue, 0, pack([]pair{{"__fobs_type__", "Shareable"}, {"__fobs_data__", []pair{
		{"__headers__", []pair{{"current_round", 1}}},
		{"DXO", []pair{{"kind", []pair{{"__fobs_type__", "DataKind"}, {"__fobs_data__", kind}}}, {"data", data}, {"meta", meta}}},
	}}})), sectionOf(markerText, object, append(bytes.Repeat([]byte{7}, idLen), text...))...)
}

// download is a request for arrays and its answer, whose frames it returns.
func (j *job) download(from parser.Side, ref string, items [][]byte, apart bool) []int {
	request := fmt.Sprintf("request-%d", j.last)
	j.send(1-from, "download_service__", "download_service__download", request, sectionOf(markerValue, 0, pack([]pair{{"ref_id", ref}, {"confirm_capable", true}})))
	data, sections := []any{}, []byte{}
	for _, b := range items {
		if apart {
			sections = append(sections, sectionOf(markerBytes, 5, append(bytes.Repeat([]byte{9}, idLen), b...))...)
			data = append(data, []pair{{"datum_id", "x"}})
			continue
		}
		data = append(data, b)
	}
	content := sectionOf(markerValue, 0, pack([]pair{{"status", "ok"}, {"state", []pair{{"start", 0}, {"count", len(items)}}}, {"data", data}, {"cancel_capable", true}}))
	return j.send(from, "return_only", "download_service__:download_service__download", request, append(content, sections...))
}

// round is a round: the model from the server, and the client's result, of that kind.
func (j *job) round(kind string, torch bool, down, up [][]byte, meta ...pair) {
	names := []string{"fc1.weight", "fc1.bias", "steps"}
	ref := fmt.Sprintf("%s-%d", j.cell, j.last)
	j.send(parser.Server, "return_only", "server_command:get_task", "a", announce("WEIGHTS", "down-"+ref, torch, names))
	j.download(parser.Server, "down-"+ref, down, false)
	j.send(parser.Client, "server_command", "submit_update", "b", announce(kind, "up-"+ref, torch, names, meta...))
	j.download(parser.Client, "up-"+ref, up, false)
}

// model is the files of three arrays, the last of integers, and their elements.
func model(torch bool, seed uint64) (files, elements [][]byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i, n := range []int{700, 30, 2} {
		size, descr, name := 4, "<f4", "F32"
		if i == 2 {
			size, descr, name = 8, "<i8", "I64"
		}
		b := make([]byte, n*size)
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		elements = append(elements, b)
		if torch {
			files = append(files, safetensorsOf(fmt.Sprintf("T%d", i), name, size, b))
			continue
		}
		files = append(files, zipOf(fmt.Sprintf("T%d.npy", i), npyOf(descr, size, b)))
	}
	return files, elements
}

// safetensorsOf is a file with one array, of elements of size bytes, as safetensors writes it.
func safetensorsOf(name, dtype string, size int, elements []byte) []byte {
	text := fmt.Sprintf(`{"%s":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}`, name, dtype, len(elements)/size, len(elements))
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), elements...)
}

// npyOf is an array of elements of size bytes, as numpy.save writes it.
func npyOf(descr string, size int, elements []byte) []byte {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, len(elements)/size)
	text += strings.Repeat(" ", 117-len(text)) + "\n"
	return append(append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), 0), append([]byte(text), elements...)...)
}

// zipOf is a ZIP file with one member, as numpy.savez writes it.
func zipOf(name string, member []byte) []byte {
	sum := crc32.ChecksumIEEE(member)
	b := binary.LittleEndian.AppendUint32([]byte("PK\x03\x04\x2d\x00\x00\x00\x00\x00\x00\x00\x21\x00"), sum)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(len(name)), 0, 20, 0)
	b = append(append(b, name...), 1, 0, 16, 0)
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(len(member))), uint64(len(member)))
	return append(append(b, member...), bytes.Repeat([]byte("directory "), 8)...)
}

// tcp is the job over TCP.
func (j *job) tcp() (x parsertest.Exchange) {
	for _, f := range j.frames {
		x = append(x, parsertest.Piece{From: f.from, Bytes: f.bytes})
	}
	return x
}

// grpc is the job over gRPC, in HTTP/2 frames of size bytes.
func (j *job) grpc(tb testing.TB, size int) parsertest.Exchange {
	w := grpctest.New(tb)
	id := w.Call(streamPath)
	w.Respond(id)
	for i, f := range j.frames {
		m := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(i))
		m = protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), f.bytes)
		for b := range slices.Chunk(grpctest.Prefixed(m), size) {
			w.Frame(f.from, func(fr *http2.Framer) error { return fr.WriteData(id, false, b) })
		}
	}
	return w.Exchange()
}

// webSocket is the job over a WebSocket, with a PING among the frames.
func (j *job) webSocket() (x parsertest.Exchange) {
	x = parsertest.Exchange{
		{From: parser.Client, Bytes: []byte("GET /f3 HTTP/1.1\r\nHost: a:8002\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\n")},
		{From: parser.Server, Bytes: []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: BBBB\r\n\r\n")},
	}
	message := func(from parser.Side, opcode byte, b []byte) {
		masked := byte(0x80)
		if from == parser.Server {
			masked = 0
		}
		h := []byte{0x80 | opcode}
		switch {
		case len(b) < 126:
			h = append(h, masked|byte(len(b)))
		case len(b) < 1<<16:
			h = binary.BigEndian.AppendUint16(append(h, masked|126), uint16(len(b)))
		default:
			h = binary.BigEndian.AppendUint64(append(h, masked|127), uint64(len(b)))
		}
		b = bytes.Clone(b)
		if from == parser.Client {
			mask := []byte{1, 0x52, 0xa3, byte(len(x))}
			h = append(h, mask...)
			for i := range b {
				b[i] ^= mask[i%4]
			}
		}
		x = append(x, parsertest.Piece{From: from, Bytes: append(h, b...)})
	}
	for i, f := range j.frames {
		if i%3 == 2 {
			message(f.from, 9, []byte("ping"))
		}
		message(f.from, 2, f.bytes)
	}
	return x
}
