//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	read  landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir
	write landlock.AccessFSSet = read | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSRemoveDir
	// files are the rights that must be granted: all on files that Landlock knows since Linux 6.10. What later kernels
	// add, as to sockets that have a path, stays free.
	files landlock.AccessFSSet = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSRemoveDir |
		ll.AccessFSRemoveFile | ll.AccessFSMakeChar | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo |
		ll.AccessFSMakeBlock | ll.AccessFSMakeSym | ll.AccessFSRefer | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	// portsABI is the version of Landlock that knows ports, of Linux 6.7.
	portsABI = 4
)

// system are the places that Go's and C's libraries read whenever they like: names of hosts and services, time zones,
// modules of the resolver, and the kernel's settings. Processes' own folders in /proc are closed by Landlock's rule on
// tracing.
var system = []string{"/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo",
	"/proc", "/sys", "/dev/urandom"}

// folders returns the folders of files, and the folders that links lead to.
func folders(files []string) []string {
	var all []string
	for _, file := range files {
		all = append(all, filepath.Dir(file))
		if real, err := filepath.EvalSymlinks(file); err == nil {
			all = append(all, filepath.Dir(real))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// restrict has Landlock open only the files that n needs, and dial only its ports. It returns a word for each, as for
// the log.
func restrict(n Needs) (filesAre, portsAre string, err error) {
	filesAre, portsAre = "any", "any"
	if n.Trace {
		return filesAre, portsAre, errors.New("it forbids looking into the jobs' processes")
	}
	abi, err := ll.LandlockGetABIVersion()
	if errors.Is(err, unix.EPERM) {
		return filesAre, portsAre, filtered(err)
	}
	if err != nil {
		return filesAre, portsAre, fmt.Errorf("this kernel has none, or was started without it (lsm=landlock): %w", err)
	}
	rules := []landlock.Rule{}
	for right, paths := range map[landlock.AccessFSSet][]string{read: append(folders(n.Files), system...), write: n.Write, ll.AccessFSRemoveFile: n.Remove} {
		for _, path := range paths {
			at := right
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				at &= ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate
			}
			rules = append(rules, landlock.PathAccess(at, path).IgnoreIfMissing())
		}
	}
	walls := []any{files}
	filesAre = "bounded"
	switch {
	case n.Ports == nil:
	case len(n.Ports) > MaxPorts:
		portsAre = fmt.Sprintf("any (over %d are named)", MaxPorts)
	case abi < portsABI:
		portsAre = "any (Landlock knows ports since Linux 6.7)"
	default:
		portsAre = "bounded"
		walls = append(walls, landlock.AccessNetSet(ll.AccessNetConnectTCP))
		for _, p := range n.Ports {
			rules = append(rules, landlock.ConnectTCP(p))
		}
	}
	if err := landlock.MustConfig(walls...).BestEffort().Restrict(rules...); err != nil {
		return "any", "any", err
	}
	return filesAre, portsAre, nil
}
