//go:build !linux || !(amd64 || arm64)

package probe

import (
	"errors"
	"net/netip"
	"time"
)

var errLinux = errors.New("probe: it takes Linux on amd64 or arm64")

// Probes are programs in processes, which only Linux has.
type Probes struct{}

// Load returns an error.
func Load(...int) (*Probes, error) { return nil, errLinux }

// Permitted returns an error.
func Permitted() error { return errLinux }

// NeedsSysAdmin returns false.
func NeedsSysAdmin() bool { return false }

// Close does nothing.
func (*Probes) Close() error { return nil }

// Find returns an error.
func (*Probes) Find(netip.AddrPort, ...netip.AddrPort) (*Process, int, error) {
	return nil, 0, errLinux
}

// Look returns an error.
func (*Probes) Look(netip.AddrPort, ...netip.AddrPort) (*Process, int, error) {
	return nil, 0, errLinux
}

// Follow returns an error.
func (*Probes) Follow(int) (*Process, error) { return nil, errLinux }

// Living returns none.
func (*Probes) Living(time.Time) []*Process { return nil }

// Recent returns -1.
func (*Probes) Recent() int { return -1 }

// A Recent is memory of programs, which only Linux has.
type Recent struct{}

// MapRecent returns an error.
func MapRecent(int) (*Recent, error) { return nil, errLinux }

// Calls tells none.
func (*Recent) Calls(dst []Call, _ Place, _ uint32) ([]Call, bool) { return dst, false }

// A Process is one that is watched.
type Process struct{}

// Pid returns 0.
func (*Process) Pid() int { return 0 }

// Identity returns 0.
func (*Process) Identity() uint64 { return 0 }

// Place returns the zero Place.
func (*Process) Place() Place { return Place{} }

// Name returns "".
func (*Process) Name() string { return "" }

// Calls returns dst.
func (*Process) Calls(dst []Call, _ uint32) []Call { return dst }

// Counts returns an error.
func (*Process) Counts() (Counts, error) { return Counts{}, errLinux }

// End reports false.
func (*Process) End(string) bool { return false }

// Ended returns why there is no proof.
func (*Process) Ended() string { return errLinux.Error() }
