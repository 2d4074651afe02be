//go:build !linux

package app

import (
	"net/netip"
	"syscall"
)

// A tcpState is empty: this system does not tell the state of a connection.
type tcpState uint8

func (tcpState) reset() bool      { return false }
func (tcpState) halfClosed() bool { return false }

func stateOf(uintptr) tcpState { return 0 }

// Taken returns 0: this system does not tell.
func Taken(syscall.Conn) uint64 { return 0 }

// ClosedByReset reports false: this system does not tell.
func ClosedByReset(syscall.Conn) bool { return false }

// ClosedByApp reports false: this system does not tell.
func ClosedByApp(app, server netip.AddrPort) bool { return false }

// setLowWater does nothing: on this system a socket can be read once one byte has come.
func setLowWater(uintptr, int) error { return nil }
