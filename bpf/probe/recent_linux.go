//go:build amd64 || arm64

package probe

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Recent is the memory to which the programs write the newest calls. Another process than the one that has loaded the
// programs may map it: that takes no capability, and nobody can write there but the programs. It answers for processes
// with one group, as long as that stays the same, and for the newest tags: an answer is the one that [Process.Calls]
// gives at that time. Methods are safe for concurrent use.
//
// A program may write while a call is read. Each call has a version for that, odd while it is written.
type Recent struct{ memory []byte }

const (
	recentWords = int(unsafe.Sizeof(probeRecentCall{})) / 8
	recentSize  = int(unsafe.Sizeof(probeRecent{}))
	recentCalls = uint32(len(probeRecent{}.Calls))
	spread      = 2654435761 // as in put of probe.c, where the product has recentBits bits left
	recentBits  = 14
)

// MapRecent maps the memory that Probes.Recent has the descriptor of. It is unmapped once nobody uses it any more.
func MapRecent(fd int) (*Recent, error) {
	memory, err := unix.Mmap(fd, 0, recentSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("probe: the newest calls cannot be mapped: %w", err)
	}
	r := &Recent{memory}
	runtime.AddCleanup(r, func(memory []byte) { _ = unix.Munmap(memory) }, memory)
	return r, nil
}

// Calls appends to dst the calls that a process has given this tag, as [Process.Calls] does. known is false, and
// nothing is appended, if the memory does not tell them.
func (r *Recent) Calls(dst []Call, at Place, tag uint32) (calls []Call, known bool) {
	c, found := r.read(at, tag)
	if !found || r.changes(at) != c.Changes {
		return dst, false
	}
	g := group{generation: c.Generation, size: c.Size, members: c.Members}
	calls = g.appendCall(dst, &c.Call)
	if unknownRelease(calls[len(dst):], &c.Call) {
		return dst, false // which Process.Calls has to notice
	}
	return calls, true
}

func (r *Recent) words() *[recentSize / 8]uint64 {
	return (*[recentSize / 8]uint64)(unsafe.Pointer(&r.memory[0]))
}

// changes returns the number of changes of the groups of the process at a place.
func (r *Recent) changes(at Place) uint64 {
	defer runtime.KeepAlive(r)
	return atomic.LoadUint64(&r.words()[at.Index])
}

// read returns the newest call of a process that expected this tag. found is false if the memory has none.
func (r *Recent) read(at Place, tag uint32) (c probeRecentCall, found bool) {
	defer runtime.KeepAlive(r)
	if at.Index >= uint32(len(probeRecent{}.Changes)) {
		return c, false
	}
	words := r.words()
	first := firstWord(at, tag)
	read := (*[recentWords]uint64)(unsafe.Pointer(&c))
	// Atomic loads are in order on each processor.
	for i := range read {
		read[i] = atomic.LoadUint64(&words[first+i])
	}
	whole := c.Version != 0 && c.Version&1 == 0 && atomic.LoadUint64(&words[first]) == c.Version // or it has no call, or is written now
	return c, whole && c.Epoch == at.Epoch && c.Tag == tag
}

// firstWord says where the memory has a call, if it has it.
func firstWord(at Place, tag uint32) int {
	return len(probeRecent{}.Changes) + recentWords*int((at.Index*spread>>(32-recentBits)+tag)&(recentCalls-1))
}
