package wansim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec makes this process become a command inside the namespace, with the environment, terminal and files that it has:
// its exit code is the command's. The files of /etc/netns/NAME lie over the files of /etc. It returns only if that
// fails.
func (n *Namespace) Exec(command []string) error {
	if len(command) == 0 {
		return errors.New("wansim: no command")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("wansim: %w", err)
	}
	return n.Do(func() error { // the thread that calls execve is the one whose namespaces stay
		if err := n.shadowEtc(); err != nil {
			return fmt.Errorf("wansim: namespace %s: files over /etc: %w%s", n.name, err, hint(err))
		}
		return fmt.Errorf("wansim: run %s: %w", path, syscall.Exec(path, command, os.Environ()))
	})
}

// shadowEtc puts the files of /etc/netns/NAME over the files of /etc, for this thread.
func (n *Namespace) shadowEtc() error {
	files, err := os.ReadDir(filepath.Join(etcDir, n.name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	for _, f := range files {
		if err := unix.Mount(filepath.Join(etcDir, n.name, f.Name()), filepath.Join("/etc", f.Name()), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return nil
}

// DeleteNamespace removes the namespace of that name, which a process has left that was killed, and its files under
// /etc/netns. The error wraps fs.ErrNotExist where there is none.
func DeleteNamespace(name string) error {
	if err := os.RemoveAll(filepath.Join(etcDir, name)); err != nil {
		return fmt.Errorf("wansim: delete namespace %s: %w", name, err)
	}
	path := filepath.Join(namespaceDir, name)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err == nil || err == unix.EINVAL { // not mounted: its maker died in between
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("wansim: delete namespace %s: %w%s", name, err, hint(err))
	}
	return nil
}
