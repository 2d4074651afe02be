//go:build !linux

package tunnel

import (
	"log/slog"
	"net"
)

// tune leaves the connection as Go opened it, with TCP_NODELAY.
func tune(net.Conn, string, SocketOptions, *slog.Logger) (string, *bbrSocket) { return "", nil }

// A bbrSocket is nothing here.
type bbrSocket struct{}

func (*bbrSocket) waits()     {}
func (*bbrSocket) writes(int) {}

func (*bbrSocket) control(name string) string { return name }

// tcpConfirmer returns nil: this system is not asked.
func tcpConfirmer(net.Conn) confirmer { return nil }
