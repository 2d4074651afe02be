//go:build !linux

package cgroup

import "errors"

// A Group is a cgroup, which only Linux has.
type Group struct{}

// New returns an error.
func New(string) (*Group, error) {
	return nil, errors.New("cgroup: there are none but on Linux: use forward")
}

// Proxy returns nothing.
func (*Group) Proxy() string { return "" }

// Job returns nothing.
func (*Group) Job() (string, error) { return "", nil }

// Close does nothing.
func (*Group) Close() error { return nil }
