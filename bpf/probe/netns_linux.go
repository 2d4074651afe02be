//go:build amd64 || arm64

package probe

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// socketElsewhere returns the inode of the established TCP socket with this address of its own and one of remotes in a
// network namespace other than the thread's, as containers behind a bridge of this host have. Each namespace is seen
// through a process in it. If several namespaces have such a socket, it is not known which of them is meant.
func socketElsewhere(own netip.AddrPort, remotes []netip.AddrPort) (uint32, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	seen := []string{here}
	var inodes []uint32
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		namespace, err := os.Readlink(filepath.Join(dir, "ns/net"))
		if err != nil || slices.Contains(seen, namespace) {
			continue
		}
		seen = append(seen, namespace)
		for _, table := range []string{"net/tcp", "net/tcp6"} {
			if inode, ok := inodeIn(filepath.Join(dir, table), own, remotes); ok {
				inodes = append(inodes, inode)
			}
		}
	}
	switch {
	case len(inodes) == 0:
		return 0, fmt.Errorf("probe: no socket of this host has the address %v", own)
	case len(inodes) == 1 && inodes[0] == 0:
		return 0, ErrNotAccepted
	case len(inodes) == 1:
		return inodes[0], nil
	}
	return 0, fmt.Errorf("probe: %d network namespaces have a socket with the address %v: which of them is meant is not known", len(inodes), own)
}

// inodeIn returns the inode of the established socket with these addresses in a table of the kernel's sockets, 0 for
// one that no process has accepted, and whether there is one.
func inodeIn(table string, own netip.AddrPort, remotes []netip.AddrPort) (inode uint32, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	const established = "01"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != established || tableAddress(fields[1]) != unmap(own) {
			continue
		}
		remote := tableAddress(fields[2])
		if !slices.ContainsFunc(remotes, func(r netip.AddrPort) bool { return unmap(r) == remote }) {
			continue
		}
		if inode, err := strconv.ParseUint(fields[9], 10, 32); err == nil {
			return uint32(inode), true
		}
	}
	return 0, false
}

// tableAddress returns an address of /proc/PID/net/tcp or tcp6, without the form in which IPv6 sockets have addresses
// of IPv4; the zero AddrPort: it is none. Each 32 bits of it are a number in the byte order of the machine, which is
// little-endian here (proc(5)).
func tableAddress(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n))
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
