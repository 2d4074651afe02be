package flowersim_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/flower"
	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A tap notes the bytes of a connection in the order in which they pass.
type tap struct {
	mu sync.Mutex
	x  parsertest.Exchange
}

// copy passes bytes on.
func (t *tap) copy(from parser.Side, dst, src net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := src.Read(b)
		if n > 0 {
			t.mu.Lock()
			t.x = append(t.x, parsertest.Piece{From: from, Bytes: bytes.Clone(b[:n])})
			t.mu.Unlock()
			if _, err := dst.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			dst.Close()
			return
		}
	}
}

// train is a training of rounds rounds with one client, which adds 1 to each value. It returns the last model and the
// connection's bytes.
func train(t *testing.T, rounds int, begin [][]float32) (last [][]float32, x parsertest.Exchange) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	clients := make(chan *flowersim.Client, 1)
	go flowersim.Serve(ctx, l, func(c *flowersim.Client) { clients <- c })
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	var noted tap
	var copies sync.WaitGroup
	copies.Go(func() { noted.copy(parser.Client, there, far) })
	copies.Go(func() { noted.copy(parser.Server, far, there) })
	ended := make(chan error, 1)
	go func() {
		ended <- flowersim.Join(ctx, addressed{near}, func(m flowersim.Message) (flowersim.Message, error) {
			switch m.Kind {
			case flowersim.GetParameters:
				return flowersim.Message{Arrays: begin}, nil
			case flowersim.Fit:
				for _, a := range m.Arrays {
					for i := range a {
						a[i]++
					}
				}
				return m, nil
			}
			return flowersim.Message{}, nil
		})
	}()
	c := <-clients
	ask := func(m flowersim.Message) flowersim.Message {
		a, err := c.Ask(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	model := ask(flowersim.Message{Kind: flowersim.GetParameters}).Arrays
	for range rounds {
		model = ask(flowersim.Message{Kind: flowersim.Fit, Arrays: model}).Arrays
		ask(flowersim.Message{Kind: flowersim.Evaluate, Arrays: model})
	}
	if err := c.End(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	there.Close()
	copies.Wait()
	return model, noted.x
}

// addressed is a pipe that has the address of a host.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:8080"))
}

// Arrays arrive as they were sent, and the parser finds each of them, and no other byte, as a model's.
func TestTraining(t *testing.T) {
	begin := [][]float32{make([]float32, 30_000), {float32(math.Inf(1)), 0.5, -1}}
	last, x := train(t, 2, begin)
	if len(last) != 2 || len(last[0]) != 30_000 || !slices.Equal(last[1], []float32{float32(math.Inf(1)), 2.5, 1}) {
		t.Errorf("%d arrays at the end", len(last))
	}
	conn := parser.Conn{Job: "job", Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.1.1:8080")}
	classes, err := parsertest.Play(new(flower.Protocol), conn, x, nil)
	if err != nil {
		t.Fatal(err)
	}
	const model = 30_003 * 4
	for side, want := range map[string]int{"client": 3 * model, "server": 4 * model} {
		spans := classes.Client
		if side == "server" {
			spans = classes.Server
		}
		got := 0
		for _, s := range spans {
			if s.Tensor.Size > 0 {
				got += s.Len
				if s.Tensor.Role != tensor.State || s.Tensor.DType != tensor.Float32 {
					t.Fatalf("%+v", s.Tensor)
				}
			}
		}
		if got != want {
			t.Errorf("%d bytes of the %s's are arrays, want %d", got, side, want)
		}
	}
	parsertest.Run(t, func() parser.Protocol { return new(flower.Protocol) }, conn, x)
}

// A client whose server goes away says so.
func TestServerLeaves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go flowersim.Serve(ctx, l, func(*flowersim.Client) { cancel() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := flowersim.Join(t.Context(), conn, func(flowersim.Message) (flowersim.Message, error) { return flowersim.Message{}, io.EOF }); err == nil {
		t.Error("a client ends well, though no server has ended its training")
	}
}
