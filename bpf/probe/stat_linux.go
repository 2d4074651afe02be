//go:build amd64 || arm64

package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A stat holds fields of /proc/PID/stat.
type stat struct {
	name   string
	parent int
	born   string // in ticks after boot
}

func statOf(pid int) (s stat, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, fmt.Errorf("probe: %w", err)
	}
	text := string(b)
	begin, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')') // the name may hold both, and spaces
	if begin < 0 || end < begin {
		return s, fmt.Errorf("probe: /proc/%d/stat is not understood", pid)
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return s, fmt.Errorf("probe: process %d has ended", pid)
	}
	s = stat{name: text[begin+1 : end], born: fields[19]}
	s.parent, err = strconv.Atoi(fields[1])
	return s, err
}

// randomOf returns the bytes that the kernel gave a process at random when it executed its program (AT_RANDOM of
// getauxval(3)): the objects of the program before, and the groups among them, are gone. "": they cannot be read.
func randomOf(pid int) string {
	const atRandom = 25
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid)) // pairs of words
	if err != nil {
		return ""
	}
	for pair := range slices.Chunk(vector, 16) {
		if len(pair) < 16 || binary.NativeEndian.Uint64(pair) != atRandom {
			continue
		}
		random := make([]byte, 16)
		if !readMemory(pid, binary.NativeEndian.Uint64(pair[8:]), random) {
			return ""
		}
		return string(random)
	}
	return ""
}

// readMemory reads the memory of a process, and reports whether all of it could be read.
func readMemory(pid int, address uint64, into []byte) bool {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(into)}}, 0)
	return err == nil && n == len(into)
}
