//go:build !linux

package intercept

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
)

// errLinux answers all that needs nf_tables.
var errLinux = errors.New("intercept: redirect and tproxy need Linux: use forward")

// A Redirect takes over connections by rules of nf_tables, which only Linux has.
type Redirect struct{}

// NewRedirect returns an error.
func NewRedirect(RedirectConfig) (*Redirect, error) { return nil, errLinux }

// TryRedirect returns an error.
func TryRedirect(RedirectConfig) error { return errLinux }

// Addrs returns none.
func (*Redirect) Addrs() []netip.AddrPort { return nil }

// Plan returns the zero Plan.

// Serve returns an error.
func (*Redirect) Serve(context.Context, Handler) error { return errLinux }

// Update returns an error.
func (*Redirect) Update([]netip.Prefix, []netip.AddrPort) error { return errLinux }

// Stop does nothing.
func (*Redirect) Stop() error { return nil }

// Pause does nothing.
func (*Redirect) Pause() error { return nil }

// GoOn does nothing.
func (*Redirect) GoOn() error { return nil }

// Leave does nothing.
func (*Redirect) Leave() error { return nil }

// Close does nothing.
func (*Redirect) Close() error { return nil }

// Control does nothing: there are no rules that could redirect a socket to the proxy.
func Control(_, _ string, _ syscall.RawConn) error { return nil }

// TransparentControl returns an error.
func TransparentControl(_, _ string, _ syscall.RawConn) error { return errLinux }

// A Hooked takes over connections by hooks, which only Linux has.
type Hooked struct{}

// NewHooked returns an error.
func NewHooked(HookedConfig) (*Hooked, error) { return nil, errLinux }

// Addrs returns none.
func (*Hooked) Addrs() []netip.AddrPort { return nil }

// Serve returns an error.
func (*Hooked) Serve(context.Context, Handler) error { return errLinux }

// Update returns an error.
func (*Hooked) Update([]netip.Prefix, []netip.AddrPort) error { return errLinux }

// Close does nothing.
func (*Hooked) Close() error { return nil }
