package probe

import (
	"errors"
	"time"
)

// ErrSocket is in the errors of looks that found no such socket, or several: another look finds the same.
var ErrSocket = errors.New("probe: the socket is not known")

type socketError struct{ error }

func (socketError) Is(target error) bool { return target == ErrSocket }

func (e socketError) Unwrap() error { return e.error }

// Patiently looks for a process until it is found, its socket is not, or several looks have failed, and returns the
// last look's error. On a busy machine a look at /proc now and then misses a process that is there, or a part of its
// memory (Linux 6.18), so that one look proves nothing.
func Patiently(look func() error) error {
	for pause := lookPause; ; pause *= 2 {
		err := look()
		if err == nil || errors.Is(err, ErrSocket) || pause > maxLookPause {
			return err
		}
		time.Sleep(pause)
	}
}

// Patiently looks at once, again after lookPause, and then after twice the last pause, up to maxLookPause.
const (
	lookPause    = 5 * time.Millisecond
	maxLookPause = 80 * time.Millisecond
)
