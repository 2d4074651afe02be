// Package confine takes from this process, once it has started, the rights that it needs no more, so that a program
// which takes it over by the bytes that it parses gains little. There are four walls:
//
//   - capabilities: the process keeps the ones that its mode needs;
//   - no_new_privs: no program that it starts gains rights;
//   - Landlock: it opens no file but in the folders that it was told of, and, where they are few, dials no other TCP
//     port;
//   - seccomp: system calls that it never makes fail with EPERM: starting programs, tracing processes, mounting,
//     loading modules or BPF programs, sockets of other families, and Multipath TCP, which Landlock does not see.
//
// A wall that the kernel lacks is left out, and the log says so. Nothing here ends the process: a forbidden call fails
// with EPERM or EACCES.
package confine

import (
	"log/slog"
	"sync"
)

// Needs lists the things that a process still does after its start.
type Needs struct {
	// Capabilities are kept as far as the process has them.
	Capabilities []Capability
	// Files are read again and again. Others may take their places, so Landlock opens the folders that they lie in.
	Files []string
	// Write are folders whose files are made, read, replaced and removed.
	Write []string
	// Remove are folders that lose a file at the end.
	Remove []string
	// Ports are the TCP ports that it dials; nil: any.
	Ports []uint16
	// Maps says that it reads and writes maps of BPF programs that are loaded.
	Maps bool
	// TryMaps uses one of them. Where it fails without CAP_BPF, as before Linux 5.19 with
	// kernel.unprivileged_bpf_disabled, that is kept. nil: none is tried.
	TryMaps func() error `json:"-"`
	// Trace says that it looks into other processes and loads BPF programs, and has no sockets but of netlink. Landlock
	// forbids to look and is left out.
	Trace bool
	// Rules says that it changes rules and others' sockets, and has no sockets but of netlink, and no files.
	Rules bool
}

// A Capability is one of Linux, by its number.
type Capability int

// Capabilities that a proxy may need after its start (capabilities(7)).
const (
	DACOverride    Capability = 1
	DACReadSearch  Capability = 2
	Kill           Capability = 5
	NetBindService Capability = 10
	NetAdmin       Capability = 12
	SysPtrace      Capability = 19
	SysAdmin       Capability = 21
	Perfmon        Capability = 38
	BPF            Capability = 39
)

// MaxPorts bounds Needs.Ports: the kernel keeps a copy of each for every thread.
const MaxPorts = 1024

// CongestionTakes reports whether the kernel lets only CAP_NET_ADMIN, which this process has, choose a TCP congestion
// control, by its name in the kernel. The first answer about a name holds for the life of the process, which gives that
// capability up.
func CongestionTakes(name string) bool {
	if is, known := takes.Load(name); known {
		return is.(bool)
	}
	is, _ := takes.LoadOrStore(name, congestionTakes(name))
	return is.(bool)
}

var takes sync.Map // answers of CongestionTakes by name

// Apply raises the walls around all threads of this process, and logs them in one line, with one more for each wall
// that is missing.
func Apply(n Needs, log *slog.Logger) { apply(n, log) }
