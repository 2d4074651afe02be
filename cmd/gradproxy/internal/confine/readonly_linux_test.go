//go:build amd64 || arm64

package confine

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A folder of a read-only file system keeps no capability: none helps.
func TestReadOnlyFolderNeedsNoCapability(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its mount namespace
		failed <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "mode=700"); err != nil {
				return err
			}
			return writable([]string{dir})
		}()
	}()
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
