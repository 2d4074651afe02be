package site

import (
	"log/slog"

	"github.com/gradproxy/gradproxy/proxy"
)

const (
	reserve = 64   // descriptors that are kept for all but connections, pipes and poll gates: carriers, the admin pages, logs; half for handshakes
	fewest  = 1024 // the usual limit of descriptors where no one has raised it
)

// shares are the parts into which the descriptors are divided.
type shares struct {
	places    int // of one descriptor each: a connection has one for the app's socket, and a second one where it bypasses the tunnel
	pipes     int // of two descriptors each, at least one pipe: so many connections that bypass the tunnel move bytes at a time
	halfOpen  int // handshakes of tunnels that are under way
	pollGates int // connections that have poll gates, of proxy.PollGateDescriptors each
}

func divide(descriptors int) (s shares) {
	s.pipes = max(min(descriptors/16, 256), 1)
	s.pollGates = max(min(descriptors/16, 1024), 1)
	s.halfOpen = max(min(descriptors/16, 1024), reserve/2)
	s.places = max(descriptors-reserve/2-s.halfOpen-2*s.pipes-proxy.PollGateDescriptors*s.pollGates, 1)
	return s
}

// shares divides the descriptors of this process, with no more places than the memory that it may have has room for. It needs fitted.
func (s *Site) shares(log *slog.Logger) shares {
	all, fit := limits(log), BudgetOf(s.fitted).places(s.allowed)
	if fit < all.places {
		log.Info("the memory limit bounds the connections, not the limit of descriptors: raise it for more", "of", s.allowed.cgroup,
			"limit", mebibytes(s.allowed.bytes), "connections", fit)
		all.places = fit
	}
	return all
}
