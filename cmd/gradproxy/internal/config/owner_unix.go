//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// forGroup reports whether root keeps a file for a group that may read it, as the systemd unit has the certificates'
// keys.
func forGroup(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == 0 && info.Mode().Perm()&^0o640 == 0
}
