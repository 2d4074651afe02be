package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Each way in which a connection ends has its name in metrics and logs; of two errors that of the receiving direction counts.
func TestHow(t *testing.T) {
	c := &path.Conn{Log: slog.New(slog.DiscardHandler)}
	wrapped := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, e := range []struct {
		send, recv error
		want       string
	}{
		{nil, nil, "closed"},
		{nil, wrapped(tunnel.ErrClosed), "closed"},
		{nil, wrapped(path.ErrAppReset), "reset by far app"},
		{nil, wrapped(path.ErrAppGone), "reset by app"},
		{wrapped(path.ErrAppGone), nil, "reset by app"},
		{nil, wrapped(&tunnel.ResetError{Code: frame.ResetByApp}), "reset by far app"},
		{nil, wrapped(&tunnel.ResetError{Code: frame.ResetByFrames}), "tunnel"},
		{nil, wrapped(frame.ErrFrame), "protocol"},
		{wrapped(parser.ErrReset), nil, "protocol"},
		{nil, wrapped(memory.ErrMemory), "memory"},
		{errors.New("something else"), nil, "tunnel"},
		{errors.New("something else"), wrapped(memory.ErrMemory), "memory"},
	} {
		if got := endedHow(c, e.send, e.recv); got != e.want {
			t.Errorf("%v and %v: %q, want %q", e.send, e.recv, got, e.want)
		}
	}
}
