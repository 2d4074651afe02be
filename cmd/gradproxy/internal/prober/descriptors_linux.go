//go:build amd64 || arm64

package prober

import (
	"errors"

	"golang.org/x/sys/unix"
)

// descriptorsIn calls take with the descriptors that each part of a control message brings, and closes them. It ends at the first error.
func descriptorsIn(control []byte, take func(fds []int) error) error {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		err = take(fds)
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// controlLen returns the length of a control message with one descriptor, in bytes.
func controlLen() int { return unix.CmsgSpace(4) }
