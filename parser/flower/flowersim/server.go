package flowersim

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// path is the method's.
const path = "/flwr.proto.FlowerService/Join"

// A Client is a client as the server sees it.
type Client struct {
	answers io.Reader
	done    chan struct{}

	mu    sync.Mutex
	w     http.ResponseWriter // nil once the client has left: net/http lets nobody write behind its handler's end
	flush func()
}

// Ask sends a request, and waits for the answer.
func (c *Client) Ask(m Message) (Message, error) {
	if err := c.send(&m); err != nil {
		return Message{}, fmt.Errorf("flowersim: %w", err)
	}
	answer, err := read(c.answers, false)
	if err == nil && answer.Kind != m.Kind {
		err = fmt.Errorf("%w: kind %d in answer to %d", errMessage, answer.Kind, m.Kind)
	}
	return answer, err
}

// End tells the client that the training is over. It must be called once.
func (c *Client) End() error {
	err := c.send(&Message{Kind: End})
	close(c.done)
	return err
}

func (c *Client) send(m *Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w == nil {
		return net.ErrClosed
	}
	err := write(c.w, m, true)
	c.flush()
	return err
}

// left is for the end of the client's call.
func (c *Client) left() {
	c.mu.Lock()
	c.w = nil
	c.mu.Unlock()
}

// Serve accepts connections of l until ctx is done, and calls joined with each client, which may keep it until its End.
// It closes l.
func Serve(ctx context.Context, l net.Listener, joined func(*Client)) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("flowersim: %w", err)
		}
		go serve(ctx, conn, joined)
	}
}

// serve serves one connection.
func serve(ctx context.Context, conn net.Conn, joined func(*Client)) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	quiet := &http.Server{ErrorLog: log.New(io.Discard, "", 0)} // a client that goes away is no error of the server's
	new(http2.Server).ServeConn(conn, &http2.ServeConnOpts{Context: ctx, BaseConfig: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := w.(http.Flusher)
		if !ok || r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		f.Flush()
		c := &Client{answers: r.Body, w: w, flush: f.Flush, done: make(chan struct{})}
		joined(c)
		select {
		case <-c.done:
			w.Header().Set("Grpc-Status", "0")
		case <-r.Context().Done():
		}
		c.left()
	})})
}
