//go:build !linux

package app

// Sleepers are connections that nobody reads until something has happened to them: on this system there are none.
type Sleepers struct{}

// Sleep reports that the connection cannot sleep.
func (*Sleepers) Sleep(*Conn, func()) bool { return false }

// Len returns 0.
func (*Sleepers) Len() int { return 0 }

// Close does nothing.
func (*Sleepers) Close() {}
