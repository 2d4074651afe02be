//go:build !linux

package proxy

import (
	"net/netip"
	"syscall"
)

// A tcpState is what the kernel says of a connection: nothing, here.
type tcpState uint8

func (tcpState) reset() bool      { return false }
func (tcpState) halfClosed() bool { return false }

func stateOf(uintptr) tcpState { return 0 }

// closedByReset is not known here.
func closedByReset(syscall.Conn) bool { return false }

// closedByApp is not known here.
func closedByApp(app, server netip.AddrPort) bool { return false }

// wakeAt does nothing here: a socket can be read once one byte has come.
func wakeAt(uintptr, int) error { return nil }
