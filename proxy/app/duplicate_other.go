//go:build !unix

package app

import (
	"errors"
	"os"
	"syscall"
)

// duplicate fails: on this system no other process takes connections over.
func duplicate(syscall.RawConn) (*os.File, error) { return nil, errors.ErrUnsupported }
