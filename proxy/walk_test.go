package proxy

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A walk records the calls of one proxy that lead out of its stages: to the app's socket, a parser, the policy, a codec
// and the tunnel's stream. Each names the stages on the stack.
type walk struct {
	mu     sync.Mutex
	on     bool
	stack  []string // stages that are entered and not left, outermost first
	stages []string // that were entered, in order
}

// roots are files whose functions run a direction in a loop: the stage that reads is one of them, entered when bytes
// are there.
var roots = map[string]string{"send/send": "", "send/read": "send.read", "receive/receive": "receive.read"}

// note records a call; reads says that it has brought new bytes. A stage is entered where the stack has it and the one
// before had not.
func (w *walk) note(reads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		return
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var stack []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		_, file, ok := strings.Cut(f.File, "proxy/path/")
		if !ok {
			continue
		}
		stage := strings.TrimSuffix(path.Base(file), ".go")
		if root, is := roots[strings.TrimSuffix(file, ".go")]; is && reads {
			stage = root
		} else if is {
			stage = ""
		}
		if stage != "" && !slices.Contains(stack, stage) {
			stack = append(stack, stage)
		}
	}
	slices.Reverse(stack)
	for _, stage := range stack {
		if !slices.Contains(w.stack, stage) {
			w.stages = append(w.stages, stage)
		}
	}
	w.stack = stack
}

func (w *walk) record() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = true
}

func (w *walk) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
	return w.stages
}

type walkedSocket struct {
	*net.TCPConn
	walk *walk
}

func (s walkedSocket) Read(p []byte) (int, error) {
	n, err := s.TCPConn.Read(p)
	s.walk.note(true)
	return n, err
}

func (s walkedSocket) Write(p []byte) (int, error) {
	s.walk.note(false)
	return s.TCPConn.Write(p)
}

type walkedStream struct {
	*testStream
	walk *walk
}

func (s walkedStream) Write(p []byte) (int, error) {
	s.walk.note(false)
	return s.testStream.Write(p)
}

func (s walkedStream) WriteMore(p []byte) (int, error) {
	s.walk.note(false)
	return s.testStream.WriteMore(p)
}

func (s walkedStream) ReadChunk() ([]byte, error) {
	b, err := s.testStream.ReadChunk()
	s.walk.note(true)
	return b, err
}

type walkedProtocol struct {
	pathtest.Toy
	walk *walk
}

func (p walkedProtocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	a, b := p.Toy.New(c)
	return walkedParser{a, p.walk}, walkedParser{b, p.walk}
}

type walkedParser struct {
	parser.Parser
	walk *walk
}

func (p walkedParser) Next(b []byte) (parser.Segment, error) {
	p.walk.note(false)
	return p.Parser.Next(b)
}

type walkedPolicy struct {
	policy.Policy
	walk *walk
}

func (p walkedPolicy) Choose(f policy.Flow, t tensor.Tensor, m policy.Measured) policy.Choice {
	p.walk.note(false)
	return p.Policy.Choose(f, t, m)
}

type walkedCodec struct {
	codecs.Codec
	walk *walk
}

func (c walkedCodec) NewEncoder(d tensor.DType, n int) (codecs.Encoder, error) {
	e, err := c.Codec.NewEncoder(d, n)
	return walkedEncoder{e, c.walk}, err
}

func (c walkedCodec) NewDecoder(d tensor.DType, n int) (codecs.Decoder, error) {
	e, err := c.Codec.NewDecoder(d, n)
	return walkedDecoder{e, c.walk}, err
}

type walkedEncoder struct {
	codecs.Encoder
	walk *walk
}

func (e walkedEncoder) Append(dst, src []byte) ([]byte, error) {
	e.walk.note(false)
	return e.Encoder.Append(dst, src)
}

type walkedDecoder struct {
	codecs.Decoder
	walk *walk
}

func (d walkedDecoder) Decode(dst, src []byte) error {
	d.walk.note(false)
	return d.Decoder.Decode(dst, src)
}

// pictured returns the stages that the picture in doc.go has before and after the tunnel.
func pictured(t *testing.T) (sends, receives []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "//\taccept ─▶ ")
	line, _, _ := strings.Cut(rest, "\n")
	before, after, ok := strings.Cut(line, " ─▶ tunnel ═══ tunnel ─▶ ")
	after, ends := strings.CutSuffix(after, " ─▶ app")
	if !ok || !ends {
		t.Fatalf("doc.go has no picture of the way from accept over the tunnel to the app: %q", line)
	}
	return strings.Split(before, " ─▶ "), strings.Split(after, " ─▶ ")
}

// A block of a tensor enters each stage of the picture in doc.go once, in that order, on its way from the app's socket
// to the tunnel and from there to the other app's. A stage is left when it returns; if a later call out of the path
// finds it on the stack again, that is a second visit.
//
// The parser and the policy are asked by a stage and return to it, and so are the rooms below the stages (codecs,
// residuals, values, memory): the picture has only stages.
func TestWalk(t *testing.T) {
	var near, far walk
	down := &pair{}
	down.down.Store(true)
	proxyOf := func(w *walk) *Proxy {
		codec := func(text string) (codecs.Codec, error) {
			c, err := pathtest.Codec(text)
			return walkedCodec{c, w}, err
		}
		chosen, err := policy.New(nil, codec)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Config{Open: down.open, Codecs: codec, Protocols: []parser.Protocol{walkedProtocol{pathtest.Toy{Role: tensor.Gradient}, w}},
			Settings: Settings{Policy: walkedPolicy{chosen, w}}, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	client, nearEnd := pathtest.TCPPair(t)
	server, farEnd := pathtest.TCPPair(t)
	nearStream, farStream := pathtest.TCPPair(t)
	var ended sync.WaitGroup
	serve := func(w *walk, end, stream *net.TCPConn, own parser.Side) {
		p := proxyOf(w)
		o := frame.Opening{Client: netip.MustParseAddrPort("127.0.0.1:1"), Server: netip.MustParseAddrPort("127.0.0.2:2"), Tag: 1}
		ended.Go(func() {
			p.carryAt(app.InProcess(walkedSocket{end, w}), walkedStream{&testStream{TCPConn: stream}, w}, "peer", slog.New(slog.DiscardHandler), o, own, noCalls, func() {})
		})
	}
	serve(&near, nearEnd, nearStream, parser.Client)
	serve(&far, farEnd, farStream, parser.Server)

	values := make([]byte, 4096) // one block of the codec
	message := pathtest.ToyPiece(1, len(values), values)
	send := func(b []byte) {
		got := make([]byte, len(b))
		if _, err := client.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes arrive, %v", len(b), err)
		}
	}
	head := len(message) - len(values)
	send(message[:head]) // opaque bytes, which go from cut to emit
	near.record()
	far.record()
	send(message[head:])
	sends, receives := pictured(t)
	if got := near.recorded(); !slices.Equal(got, sends) {
		t.Errorf("on its way to the tunnel a block enters %q; the picture in doc.go has %q", got, sends)
	}
	if got := far.recorded(); !slices.Equal(got, receives) {
		t.Errorf("on its way from the tunnel a block enters %q; the picture in doc.go has %q", got, receives)
	}
	client.Close()
	server.Close()
	ended.Wait()
}
