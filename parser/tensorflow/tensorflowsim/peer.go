package tensorflowsim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
)

// A Peer is another process of the cluster, to be called.
type Peer struct {
	addr   string
	client *http.Client
}

// NewPeer returns the process that serves addr. dial connects to it at the first call, and again only after the
// connection has ended; nil: a net.Dialer does.
func NewPeer(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Peer {
	return &Peer{addr, &http.Client{Transport: &http.Transport{DialContext: dial, MaxConnsPerHost: 1, Protocols: plainHTTP2(), HTTP2: windows, DisableCompression: true}}}
}

// Close closes the connection, when no call is under way.
func (p *Peer) Close() { p.client.CloseIdleConnections() }

// Call calls a method of WorkerService and returns its response.
func (p *Peer) Call(ctx context.Context, method string, request []byte) ([]byte, error) {
	response, err := p.call(ctx, method, request)
	if err != nil {
		return nil, fmt.Errorf("tensorflowsim: %s of %s: %w", method, p.addr, err)
	}
	return response, nil
}

func (p *Peer) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+WorkerService+method, bytes.NewReader(prefixed(request)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	answer, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	response, err := readMessage(answer.Body)
	if _, err := io.Copy(io.Discard, answer.Body); err != nil { // up to the trailers
		return nil, err
	}
	if status := answer.Trailer.Get("Grpc-Status"); status != "0" {
		return nil, fmt.Errorf("status %q", status)
	}
	return response, err
}

// Register registers the peer's part of a session's graph.
func (p *Peer) Register(ctx context.Context, session string, nodes []Node) error {
	_, err := p.Call(ctx, "RegisterGraph", RegisterGraph(session, nodes))
	return err
}

// Run has the peer run its part of a session's graph as a step, and waits for its end.
func (p *Peer) Run(ctx context.Context, session string, step uint64) error {
	_, err := p.Call(ctx, "RunGraph", RunGraph(session, step))
	return err
}

// Recv pulls a tensor from the peer, which may not have it yet, and returns the RecvTensorResponse.
func (p *Peer) Recv(ctx context.Context, step uint64, key string) ([]byte, error) {
	return p.Call(ctx, "RecvTensor", Request(step, key, rand.Uint64()|1<<63))
}
