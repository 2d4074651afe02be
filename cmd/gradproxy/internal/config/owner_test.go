//go:build unix

package config

import (
	"io/fs"
	"syscall"
	"testing"
	"time"
)

// A fileOf is a file's description with a mode and an owner.
type fileOf struct {
	mode fs.FileMode
	uid  uint32
}

func (fileOf) Name() string        { return "key.pem" }
func (fileOf) Size() int64         { return 0 }
func (f fileOf) Mode() fs.FileMode { return f.mode }
func (fileOf) ModTime() time.Time  { return time.Time{} }
func (fileOf) IsDir() bool         { return false }
func (f fileOf) Sys() any          { return &syscall.Stat_t{Uid: f.uid} }

func TestKeysOfRootMayBeForAGroup(t *testing.T) {
	for f, want := range map[fileOf]bool{{0o640, 0}: true, {0o600, 0}: true, {0o640, 1000}: false, {0o644, 0}: false, {0o660, 0}: false} {
		if got := forGroup(f); got != want {
			t.Errorf("mode %#o of user %d: %v, want %v", f.mode, f.uid, got, want)
		}
	}
}
