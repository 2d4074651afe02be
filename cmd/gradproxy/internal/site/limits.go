package site

import (
	"log/slog"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
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

// Connections returns how many connections a site with the configuration c may have where this process runs, by its
// limit of descriptors and of memory, and the bytes that the site takes at most with all of them.
func Connections(c *config.Config) (n int, bytes int64) {
	b := BudgetOf(c)
	n = min(limits(slog.New(slog.DiscardHandler)).places, b.places(memoryAllowed()))
	return n, b.with(n)
}

// divide sets the limits, maxPlaces and places. It needs fitted.
func (s *Site) divide(log *slog.Logger) {
	s.limits = s.shares(log)
	s.places = intercept.NewPlaces(s.maxPlaces)
	s.places.Bound(s.limits.places)
}

// shares divides the descriptors of this process, with no more places than the memory that it may have has room for. It
// needs fitted, and sets maxPlaces.
func (s *Site) shares(log *slog.Logger) shares {
	all, fit := limits(log), BudgetOf(s.fitted).places(s.allowed)
	s.maxPlaces = all.places
	if fit < all.places {
		log.Info("the memory limit bounds the connections, not the limit of descriptors: raise it for more", "of", s.allowed.cgroup,
			"limit", mebibytes(s.allowed.bytes), "connections", fit)
		all.places = fit
	}
	return all
}
