//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// keep drops all capabilities of all threads but the ones that n needs, and returns them. The capabilities that the
// process would miss for its maps and its own files are found out by a try without them.
func keep(n Needs) ([]Capability, error) {
	now := cap.GetProc()
	has := func(c Capability) bool {
		is, err := now.GetFlag(cap.Permitted, cap.Value(c))
		return err == nil && is
	}
	kept := slices.DeleteFunc(slices.Clone(n.Capabilities), func(c Capability) bool { return !has(c) })
	add := func(c Capability) {
		if has(c) && !slices.Contains(kept, c) {
			kept = append(kept, c)
		}
	}
	if n.TryMaps != nil && with(kept, n.TryMaps) != nil {
		add(BPF)
	}
	if with(kept, func() error { return readable(n.Files) }) != nil {
		add(DACReadSearch)
	}
	if with(kept, func() error { return writable(slices.Concat(n.Write, n.Remove)) }) != nil {
		add(DACOverride)
	}
	slices.Sort(kept)
	set := cap.NewSet()
	for _, c := range kept {
		if err := set.SetFlag(cap.Permitted, true, cap.Value(c)); err != nil {
			return nil, err
		}
		if err := set.SetFlag(cap.Effective, true, cap.Value(c)); err != nil {
			return nil, err
		}
	}
	return kept, set.SetProc()
}

// congestionTakes reports whether the kernel lets only CAP_NET_ADMIN, which this process has, choose a TCP congestion
// control.
func congestionTakes(name string) bool {
	if tunnel.TryCongestion(name) != nil { // with all rights, by which the kernel may load the module
		return false
	}
	return errors.Is(with(nil, func() error { return tunnel.TryCongestion(name) }), unix.EPERM)
}

// readable returns an error if one of the files cannot be read.
func readable(files []string) error {
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func writable(folders []string) error {
	for _, folder := range folders {
		err := unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		if err != nil && !errors.Is(err, unix.EROFS) { // no capability helps against a file system that is read-only
			return err
		}
	}
	return nil
}

// with calls f on a thread that has these capabilities in force and no others.
func with(kept []Capability, f func() error) error {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var was [2]unix.CapUserData
	if err := unix.Capget(&header, &was[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("capget: %w", err)
	}
	less := was
	less[0].Effective, less[1].Effective = 0, 0
	for _, c := range kept {
		less[c/32].Effective |= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &less[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("capset: %w", err)
	}
	err := f()
	if failed := unix.Capset(&header, &was[0]); failed != nil {
		return fmt.Errorf("capset: %w", failed) // the thread stays locked, so that nothing else runs on it
	}
	runtime.UnlockOSThread()
	return err
}
