package tensorflowsim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

// serve has a process answer calls until the test is over, and returns it as its peers see it.
func serve(t *testing.T, p *sim.Process) *sim.Peer {
	t.Helper()
	peer := sim.NewPeer(listen(t, p), nil)
	t.Cleanup(peer.Close) // before the process ends
	return peer
}

// listen has a process answer calls until the test is over, and returns its address.
func listen(t *testing.T, p *sim.Process) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
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

// All calls of a peer, also if the first begin at the same time, travel on one connection, as between two processes of
// TensorFlow.
func TestOneConnection(t *testing.T) {
	const calls = 20
	p := new(sim.Process)
	addr := listen(t, p)
	var dials atomic.Int32
	peer := sim.NewPeer(addr, func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	defer peer.Close()
	for step := range uint64(2) {
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				if _, err := peer.Recv(t.Context(), step, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range calls {
			p.Send(step, fmt.Sprint(i), nil)
		}
		all.Wait()
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d calls twice have made %d connections", calls, n)
	}
}

// A call for a tensor that never comes ends with its context, at the process that waits for the tensor too.
func TestCallEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(answered)
		r.Body = &counting{r.Body, r.ContentLength, cancel}
		new(sim.Process).ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	peer := sim.NewPeer(l.Addr().String(), nil)
	defer peer.Close()
	if _, err := peer.Recv(ctx, 1, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	<-answered
}

// A counting body calls whole when left bytes of it have been read.
type counting struct {
	io.ReadCloser
	left  int64
	whole func()
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if c.left -= int64(n); c.left == 0 {
		c.whole()
	}
	return n, err
}

// A process ends after its answers to calls: while it answers one, Serve does not return.
func TestServeWaitsForAnswers(t *testing.T) {
	begun, released := make(chan struct{}), make(chan struct{})
	p := &sim.Process{Run: func(ctx context.Context, _ string, _ uint64) error {
		close(begun)
		<-ctx.Done()
		<-released
		return ctx.Err()
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	peer := sim.NewPeer(l.Addr().String(), nil)
	defer peer.Close()
	called := make(chan error, 1)
	go func() { called <- peer.Run(t.Context(), "session-1", 1) }()
	<-begun
	cancel()
	if err := <-called; err == nil { // its connection is closed
		t.Error("a call has succeeded though its process ended")
	}
	select {
	case <-ended:
		close(released)
		t.Fatal("the process has ended before its answer to a call")
	case <-time.After(10 * time.Millisecond): // enough on most runs to see a process that does not wait
	}
	close(released)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
