//go:build !linux

package config

// Kernel finds settings that the kernel of this host does not have. Outside Linux there are none: congestion controls
// are not set there.
func (c *Config) Kernel() Problems { return nil }
