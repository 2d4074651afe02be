//go:build !linux

package bpf

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("bpf: programs on cgroups need Linux: use forward")

// Hooks are programs on cgroups, which only Linux has.
type Hooks struct{}

// Attach returns an error.
func Attach(Config) (*Hooks, error) { return nil, errLinux }

// Permitted returns an error.
func Permitted() error { return errLinux }

// Awaited returns an error.
func Awaited(string) (listen4, listen6 uint16, err error) { return 0, 0, errLinux }

// Update returns an error.
func (*Hooks) Update([]netip.Prefix, []netip.AddrPort) error { return errLinux }

// Refresh returns an error.
func (*Hooks) Refresh() error { return errLinux }

// Flows returns none.
func (*Hooks) Flows() ([]Flow, error) { return nil, errLinux }

// Total returns zero.
func (*Hooks) Total() (Total, error) { return Total{}, errLinux }

// Stop does nothing.
func (*Hooks) Stop() error { return nil }

// Close does nothing.
func (*Hooks) Close() error { return nil }
