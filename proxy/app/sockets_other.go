//go:build !linux

package app

import (
	"errors"
	"net/netip"
)

// HostSockets fails: only Linux lists them so.
func HostSockets([]netip.Addr) ([]HostSocket, error) { return nil, errors.ErrUnsupported }
