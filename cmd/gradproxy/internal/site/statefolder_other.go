//go:build !unix

package site

import "os"

func makeState(dir string) (refused, err error) { return nil, os.MkdirAll(dir, 0o700) }

func claimState(dir, _ string) (lock *os.File, refused, err error) {
	return nil, nil, os.MkdirAll(dir, 0o700)
}

func openState(name string) (*os.File, error) { return os.Open(name) }
