package nvflaresim_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/nvflare"
	sim "github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A recorder notes all writes of both ends of a connection, in their order: NVFlare's ends speak in turns.
type recorder struct {
	mu sync.Mutex
	x  parsertest.Exchange
}

// An end is one end of a connection.
type end struct {
	net.Conn
	side parser.Side
	to   *recorder
}

func (e end) Write(b []byte) (int, error) {
	e.to.mu.Lock()
	e.to.x = append(e.to.x, parsertest.Piece{From: e.side, Bytes: bytes.Clone(b)})
	e.to.mu.Unlock()
	return e.Conn.Write(b)
}

// connect returns both ends of a TCP connection.
func connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// train is a training of rounds rounds with one client, which adds 1 to each value. It returns the last model, as the
// client has it, and the connection's bytes.
func train(t *testing.T, rounds int, model []sim.Array) (last []sim.Array, x parsertest.Exchange) {
	t.Helper()
	var notes recorder
	near, far := connect(t)
	ended := make(chan error, 1)
	go func() {
		ended <- sim.Join(t.Context(), end{near, parser.Client, &notes}, "site-1", func(task sim.Shareable) (sim.Shareable, error) {
			if task.Task == sim.Validate {
				last = task.Arrays
				return sim.Shareable{Kind: sim.Metrics}, nil
			}
			result := sim.Shareable{Kind: sim.Differences}
			for _, a := range task.Arrays {
				result.Arrays = append(result.Arrays, sim.Array{Name: a.Name, Values: slices.Repeat([]float32{1}, len(a.Values))})
			}
			return result, nil
		})
	}()
	c, err := sim.Accept(end{far, parser.Server, &notes})
	if err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		result, err := c.Do(sim.Shareable{Task: sim.Train, Round: round, Kind: sim.Weights, Arrays: model})
		if err != nil || result.Kind != sim.Differences || result.Round != round || len(result.Arrays) != len(model) {
			t.Fatalf("%+v, %v", result, err)
		}
		for i, a := range result.Arrays {
			if a.Name != model[i].Name {
				t.Errorf("array %d is %q, want %q", i, a.Name, model[i].Name)
			}
			for k, v := range a.Values {
				model[i].Values[k] += v
			}
		}
	}
	if result, err := c.Do(sim.Shareable{Task: sim.Validate, Kind: sim.Weights, Arrays: model}); err != nil || len(result.Arrays) != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if err := c.End(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return last, notes.x
}

// Arrays arrive as they were sent, in one answer or several; and the parser finds each of them, but for elements that
// two frames share: models as state, results as gradients.
func TestTraining(t *testing.T) {
	const large, rounds = 300_001, 2 // more than a frame has, and with the next array more than an answer
	begin := []sim.Array{{Name: "fc.weight", Values: make([]float32, large)}, {Name: "fc.bias", Values: []float32{float32(math.Inf(1)), 0.5, -1}}, {Name: "out", Values: make([]float32, large)}}
	last, x := train(t, rounds, begin)
	if len(last) != 3 || len(last[0].Values) != large || last[2].Values[large-1] != rounds || !slices.Equal(last[1].Values, []float32{float32(math.Inf(1)), 2.5, 1}) {
		t.Errorf("%d arrays at the end", len(last))
	}
	conn := parser.Conn{Job: "job", Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.1.1:8002")}
	const model = 4 * (2*large + 3)
	for side, want := range map[parser.Side]struct {
		role  tensor.Role
		bytes int
	}{parser.Client: {tensor.Gradient, rounds * model}, parser.Server: {tensor.State, (rounds + 1) * model}} {
		got := 0
		for _, f := range parsertest.Find(t, new(nvflare.Protocol), conn, x)[side] {
			if got += len(f.Data); f.Role != want.role || f.DType != tensor.Float32 {
				t.Fatalf("%v: %+v", side, f.Tensor)
			}
		}
		if got > want.bytes || got < want.bytes-4*2*(rounds+1) { // two arrays of a model cross a border of frames
			t.Errorf("%d bytes of the %v's are arrays, want %d", got, side, want.bytes)
		}
	}
}

// The promises of package parser hold for a training's bytes.
func TestConforms(t *testing.T) {
	_, x := train(t, 1, []sim.Array{{Name: "w", Values: []float32{1, 2, 3}}})
	parsertest.Run(t, func() parser.Protocol { return new(nvflare.Protocol) }, parser.Conn{Job: "job"}, x)
}

// A client whose server goes away says so.
func TestServerLeaves(t *testing.T) {
	near, far := connect(t)
	go func() {
		sim.Accept(far)
		far.Close()
	}()
	if err := sim.Join(t.Context(), near, "site-1", nil); err == nil {
		t.Error("a client ends well, though no server has ended its job")
	}
}

// A server whose client fails says so.
func TestClientFails(t *testing.T) {
	near, far := connect(t)
	go sim.Join(t.Context(), near, "site-1", func(sim.Shareable) (sim.Shareable, error) { return sim.Shareable{}, errors.New("out of memory") })
	c, err := sim.Accept(far)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(sim.Shareable{Task: sim.Train, Kind: sim.Weights, Arrays: []sim.Array{{Name: "w", Values: []float32{1}}}}); err == nil {
		t.Error("a task ends well, though its client has failed")
	}
}

// A client that is told to stop ends.
func TestClientIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	near, _ := connect(t)
	if err := sim.Join(ctx, near, "site-1", nil); err == nil {
		t.Error("a client ends well, though it is told to stop")
	}
}

// An announcement names the class of its arrays in NVFlare, by the container of their files.
func TestAnnouncementNamesClass(t *testing.T) {
	for torch, class := range map[bool]string{false: "numpy.ndarray", true: "torch.Tensor"} {
		a := sim.Announcement{Task: sim.Train, Kind: sim.Weights, Ref: "ref-1", Torch: torch, Names: []string{"w"}}
		for _, name := range []string{"numpy.ndarray", "torch.Tensor"} {
			if got := bytes.Contains(a.Content(), []byte(name)); got != (name == class) {
				t.Errorf("torch %v: the announcement names %s: %v", torch, name, got)
			}
		}
	}
}
