//go:build unix

package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeState makes sure that a folder of state, which is made if there is none, is this user's alone. An error of
// refused is one of the folder's rights; other errors, as of a disk that is full, are not.
func makeState(dir string) (refused, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("state.dir %s has mode %#o, so others may put files there: chmod 700 it, or name a folder of its own", dir, mode), nil
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != uint32(os.Geteuid()) {
		return fmt.Errorf("state.dir %s belongs to user %d, and this process to user %d: chown it, or name another folder", dir, owner, os.Geteuid()), nil
	}
	return nil, nil
}

// claimState is makeState, and makes sure that no other process writes this site's files there, as long as the returned
// file is open: that error is one of refused too.
func claimState(dir, site string) (lock *os.File, refused, err error) {
	if refused, err := makeState(dir); refused != nil || err != nil {
		return nil, refused, err
	}
	name := stateLock(dir, site)
	lock, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		lock.Close()
		return nil, fmt.Errorf("state.dir: another gradproxy has locked %s (lslocks): stop it, or name another folder", name), nil
	case err != nil: // a file system without locks
		lock.Close()
		return nil, nil, &fs.PathError{Op: "flock", Path: name, Err: err}
	}
	return lock, nil, nil
}

// openState opens a file of state, and no link to another.
func openState(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
}
