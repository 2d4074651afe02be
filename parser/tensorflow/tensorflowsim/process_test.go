package tensorflowsim_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

// serve has a process answer calls until the test is over, and returns it as its peers see it.
func serve(t *testing.T, p *sim.Process) *sim.Peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	peer := sim.NewPeer(l.Addr().String(), nil)
	t.Cleanup(func() {
		peer.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return peer
}

// A tensor arrives as it was sent, whoever comes first, and a step runs in its session.
func TestCalls(t *testing.T) {
	content := bytes.Repeat([]byte("elements"), 600_000) // larger than a window
	key := sim.Key(sim.Server, sim.WorkerDevice(1), "edge_1_w")
	p := new(sim.Process)
	p.Run = func(_ context.Context, session string, step uint64) error {
		if session != "session-1" || step < 7 {
			return errors.New("there is no such step")
		}
		p.Send(step, key, sim.Tensor(1, content, uint64(len(content)/4)))
		return nil
	}
	peer := serve(t, p)
	if err := peer.Register(t.Context(), "session-1", []sim.Node{{Name: "w", Op: "VariableV2"}}); err != nil {
		t.Fatal(err)
	}
	for step, first := range map[uint64]bool{7: true, 8: false} {
		pulled := make(chan []byte, 1)
		pull := func() {
			response, err := peer.Recv(t.Context(), step, key)
			if err != nil {
				t.Error(err)
			}
			pulled <- response
		}
		if first {
			go pull()
		}
		if err := peer.Run(t.Context(), "session-1", step); err != nil {
			t.Fatal(err)
		}
		if !first {
			go pull()
		}
		if got := sim.Content(<-pulled); !bytes.Equal(got, content) {
			t.Errorf("step %d: %d bytes of %d have arrived", step, len(got), len(content))
		}
	}
	if err := peer.Run(t.Context(), "session-1", 1); err == nil || !strings.Contains(err.Error(), "RunGraph") {
		t.Errorf("a step fails, and its caller is told %v", err)
	}
}

// A call for a tensor that never comes ends with its context.
func TestCallEnds(t *testing.T) {
	peer := serve(t, new(sim.Process))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := peer.Recv(ctx, 1, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
