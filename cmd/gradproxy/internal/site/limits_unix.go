//go:build unix

package site

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// limits divides the limit of descriptors. Go has raised the soft limit to the hard one already.
func limits(log *slog.Logger) shares {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of descriptors is unknown", "err", err)
		return divide(fewest)
	}
	if limit.Cur < fewest {
		log.Warn("few descriptors: connections beyond their number wait; raise the limit (ulimit -n, LimitNOFILE=)", "limit", limit.Cur)
	}
	return divide(int(min(uint64(limit.Cur), 1<<20)))
}
