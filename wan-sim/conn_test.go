package wansim

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

func TestPipeIsAConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b, err := Pipe(Link{}, Link{})
		return a, b, func() { a.Close(); b.Close() }, err
	})
}
