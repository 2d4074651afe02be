package bpf

import (
	"errors"
	"os"
	"sync"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Hooks are programs that are attached to cgroups. They redirect connections in the network namespace in which they
// were attached. Methods are safe for concurrent use.
type Hooks struct {
	config  Config // as at first: Update changes the maps
	objects bpfObjects
	cgroup  *os.File // locked: one living process redirects its connections
	routes  *netlink.Handle
	links   []link.Link
	lasting []lasting
	staying []lasting // a dead proxy's, see stays

	mu      sync.Mutex // guards the fields below
	maps    maps
	stopped bool // Stop was called: there are no beats any more
}

// errClosed is the error of methods that need the programs after Close.
var errClosed = errors.New("bpf: the programs are removed")

// closed reports whether the programs are gone. h.mu is held.
func (h *Hooks) closed() bool { return h.objects.GpConnect4 == nil }
