//go:build unix

package site

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// reserve is how many descriptors are kept for everything but intercepted connections: carriers, the admin pages, logs.
const reserve = 64

// maxConnections returns how many connections may be intercepted at once, by the limit of descriptors. Go has raised
// the soft limit to the hard one already.
func maxConnections(log *slog.Logger) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of descriptors is unknown", "err", err)
		return 1024 - reserve
	}
	n := int(min(uint64(limit.Cur), 1<<20)) - reserve
	if n < 1024-reserve {
		log.Warn("few descriptors: connections beyond their number wait; raise the limit (ulimit -n, LimitNOFILE=)", "limit", limit.Cur)
	}
	return n
}
