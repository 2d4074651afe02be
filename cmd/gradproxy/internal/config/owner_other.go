//go:build !unix

package config

import "io/fs"

// forGroup reports whether root keeps a file for a group that may read it. There is no root here.
func forGroup(fs.FileInfo) bool { return false }
