//go:build !linux || !(amd64 || arm64)

package warden

import (
	"errors"
	"log/slog"
	"net/netip"
	"syscall"
)

var errLinux = errors.New("warden: it takes Linux on amd64 or arm64")

// Available says that this system has wardens.
const Available = false

// A Client asks a warden. This system has no wardens.
type Client struct{}

// Start returns an error.
func Start(Duty, *slog.Logger, func(error)) (*Client, error) { return nil, errLinux }

// Pid returns 0.
func (*Client) Pid() int { return 0 }

// Refresh returns an error.
func (*Client) Refresh() error { return errLinux }

// Update returns an error.
func (*Client) Update([]netip.Prefix, []netip.AddrPort) error { return errLinux }

// Expire returns an error.
func (*Client) Expire() error { return errLinux }

// Remove returns an error.
func (*Client) Remove() error { return errLinux }

// Mark returns an error.
func (*Client) Mark(_, _ string, _ syscall.RawConn) error { return errLinux }

// MarkClient returns an error.
func (*Client) MarkClient(_, _ string, _ syscall.RawConn) error { return errLinux }

// Congestion returns an error.
func (*Client) Congestion(int) error { return errLinux }

// Buffers returns an error.
func (*Client) Buffers(int) error { return errLinux }

// Close does nothing.
func (*Client) Close() error { return nil }
