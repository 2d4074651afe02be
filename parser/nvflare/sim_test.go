package nvflare

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	sim "github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

func fresh() parser.Protocol { return new(Protocol) }

// conn is the connection of a client on host 10.0.0.n.
func conn(n byte) parser.Conn {
	return parser.Conn{Job: "job", Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 40_000), Server: netip.MustParseAddrPort("10.0.1.1:8002")}
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
	return &job{cell: cell, chunk: chunk, frames: []simFrame{{parser.Client, sim.Greeting(sim.TypeHello, cell)}, {parser.Server, sim.Greeting(sim.TypeReady, "server.job")}}}
}

// send sends a stream, and returns the numbers of its frames.
func (j *job) send(from parser.Side, channel, topic, request string, content []byte, extra ...any) (numbers []int) {
	s := sim.Sender{Origin: j.cell, Destination: "server.job", Chunk: j.chunk, Last: j.last}
	if from == parser.Server {
		s.Origin, s.Destination = s.Destination, s.Origin
	}
	for _, b := range s.Frames(sim.Stream{Channel: channel, Topic: topic, Request: request, Content: content}, extra...) {
		numbers = append(numbers, len(j.frames))
		j.frames = append(j.frames, simFrame{from, b})
	}
	j.last = s.Last
	return numbers
}

// announce is the content of a stream that announces arrays.
func announce(kind, ref string, torch bool, names []string, meta ...any) []byte {
	a := sim.Announcement{Task: sim.Train, Round: 1, Kind: kind, Ref: ref, Torch: torch, Names: names, Meta: meta}
	return a.Content()
}

// download is a request for arrays and its answer, whose frames it returns.
func (j *job) download(from parser.Side, ref string, items [][]byte, apart bool) []int {
	request := fmt.Sprintf("request-%d", j.last)
	j.send(1-from, "download_service__", "download_service__download", request, sim.Request(ref, 0))
	return j.send(from, "return_only", "download_service__:download_service__download", request, sim.Items(items, 0, apart))
}

// round is a round: the model from the server, and the client's result, of that kind.
func (j *job) round(kind string, torch bool, down, up [][]byte, meta ...any) {
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
			files = append(files, sim.Safetensors(fmt.Sprintf("T%d", i), name, size, b))
			continue
		}
		files = append(files, sim.Zip(fmt.Sprintf("T%d.npy", i), sim.NPY(descr, size, b)))
	}
	return files, elements
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
