//go:build !linux

package site

import "errors"

func tcpSockets() ([]socket, error) { return nil, errors.ErrUnsupported }
