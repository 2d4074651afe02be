//go:build !unix

package site

import "log/slog"

// maxConnections returns a number of intercepted connections that is never in the way.
func maxConnections(*slog.Logger) int { return 1 << 14 }
