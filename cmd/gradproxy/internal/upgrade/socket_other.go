//go:build !linux

package upgrade

import (
	"context"
	"errors"
	"io"
	"os"
)

// A Listener waits for the processes that are to take over. On this system there is none.
type Listener struct{}

// Listen fails: on this system no process takes over from another.
func Listen(string) (*Listener, error) { return nil, errors.ErrUnsupported }

// Accept fails.
func (*Listener) Accept(string, func(error)) (*Giver, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Listener) Close() error { return nil }

// A Giver is the old process's end of a hand-over.
type Giver struct{ Request }

// Refuse does nothing.
func (*Giver) Refuse(error) error { return nil }

// Give fails.
func (*Giver) Give(context.Context, *Answer, []*os.File, func(io.Writer) error) error {
	return errors.ErrUnsupported
}

// Close does nothing.
func (*Giver) Close() error { return nil }

// A Parcel is the descriptors and the state that another process has handed over.
type Parcel struct {
	Answer
	Files []*os.File // of Listeners, then of Connections
	State []byte     // of the tensors
}

// ErrNobody says that no process listens on the socket.
var ErrNobody = errors.New("no process is there to take over from")

// TakeOver fails with ErrNobody.
func TakeOver(context.Context, string, Request, func(*Parcel) error, func()) (*Parcel, error) {
	return nil, ErrNobody
}

// Close does nothing.
func (*Parcel) Close() {}
