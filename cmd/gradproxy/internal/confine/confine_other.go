//go:build !linux || !(amd64 || arm64)

package confine

import "log/slog"

func congestionTakes(string) bool { return false }

func apply(_ Needs, log *slog.Logger) {
	log.Info("this process keeps all its rights: only Linux on amd64 and arm64 can take them")
}
