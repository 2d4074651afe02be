package site

import "github.com/gradproxy/gradproxy/proxy"

const (
	reserve = 64   // descriptors that are kept for all but connections, pipes and poll gates: carriers, the admin pages, logs
	fewest  = 1024 // descriptors that a process has, most often, where nobody has thought of it
)

// shares are what descriptors are divided into.
type shares struct {
	places    int // of one each: a connection has one for what the app has opened, and where it is passed on a second one
	pipes     int // of two each, and one of them at least: so many connections that are passed on move bytes at a time
	pollGates int // connections that have poll gates, of proxy.PollGateDescriptors each
}

func divide(descriptors int) (s shares) {
	s.pipes = max(min(descriptors/16, 256), 1)
	s.pollGates = max(min(descriptors/16, 1024), 1)
	s.places = max(descriptors-reserve-2*s.pipes-proxy.PollGateDescriptors*s.pollGates, 1)
	return s
}
