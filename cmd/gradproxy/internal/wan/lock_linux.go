package wan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A lockFile gives the process that has locked it the sole right to touch the notes on a network. Its locks are of the
// open file (fcntl(2), F_OFD_SETLK): they end with their process, and others can ask for them without taking them.
// Whoever touches anything has locked the first byte. A process that plays the network has then written its number into
// the file, and after that locked the second byte: as long as that is locked, the number is the one of the process that
// has.
type lockFile struct{ *os.File }

// The bytes that are locked.
const (
	busyByte = iota
	ownedByte
)

// errOwned: a process plays the network.
var errOwned = errors.New("its process lives")

// errBusy: a process removes the network, or begins to lay it out.
var errBusy = errors.New("another process is busy with it")

// lock locks the file, which it makes if need be, until it is closed. It waits for others that are busy with the
// network.
func lock(ctx context.Context, path string) (*lockFile, error) {
	for {
		l, err := tryLock(path)
		if !errors.Is(err, errBusy) {
			return l, err
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("%w: try again later: %w", errBusy, err)
		}
	}
}

// tryLock returns the locked file, or errOwned or errBusy.
func tryLock(path string) (_ *lockFile, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lockFile{f}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	err = l.ask(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: busyByte})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		if pid, err := l.owner(); err != nil || pid != 0 {
			return nil, errors.Join(err, errOwned)
		}
		return nil, errBusy
	}
	if err != nil {
		return nil, err
	}
	// Its owner may have removed it in between: then this is another file than the next process finds.
	held, err1 := f.Stat()
	named, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(held, named) {
		return nil, errBusy
	}
	return l, f.Truncate(0) // the number of a process that died
}

// openLock opens the file to ask for its owner.
func openLock(path string) (*lockFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &lockFile{f}, nil
}

// own notes that this process, which has locked the file, plays the network.
func (l *lockFile) own() error {
	if _, err := l.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	return l.ask(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: ownedByte})
}

// owner returns the number of the process that plays the network, which lived when it was asked; 0: none does.
func (l *lockFile) owner() (int, error) {
	held := unix.Flock_t{Type: unix.F_WRLCK, Start: ownedByte}
	if err := l.ask(unix.F_OFD_GETLK, &held); err != nil || held.Type == unix.F_UNLCK {
		return 0, err
	}
	text, err := io.ReadAll(io.NewSectionReader(l, 0, 32)) // only now: whoever locks that byte has written its number
	if err != nil || len(text) == 0 {
		return 0, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("%s does not name a process: %q", l.Name(), text)
	}
	return pid, nil
}

// ask asks the kernel about a lock of one byte.
func (l *lockFile) ask(command int, lock *unix.Flock_t) error {
	lock.Len = 1
	if err := unix.FcntlFlock(l.Fd(), command, lock); err != nil {
		return fmt.Errorf("lock %s: %w", l.Name(), err)
	}
	return nil
}

// pause waits a little, or is an error when ctx ends.
func pause(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
