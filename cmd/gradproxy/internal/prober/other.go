//go:build !linux || !(amd64 || arm64)

package prober

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/confine"
)

var errLinux = errors.New("prober: it takes Linux on amd64 or arm64")

// A line is a socket pair's end at the proxy, which only Linux has.
type line struct{ timeouts atomic.Uint64 }

func (*line) ask([]byte, syscall.Conn) ([]byte, error)           { return nil, errLinux }
func (*line) askForRecent([]byte) ([]byte, *probe.Recent, error) { return nil, nil, errLinux }
func (*line) ready() error                                       { return errLinux }
func (*line) lateFor() time.Duration                             { return 0 }
func (*line) close()                                             {}

// Start returns an error.
func Start(*slog.Logger, func(error)) (*Client, error) { return nil, errLinux }

// Capabilities returns none.
func Capabilities() []confine.Capability { return nil }
