//go:build amd64 || arm64

package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf/link"
)

// An inode names a file, whatever mount namespaces call it. A file that overlays show in several places has several.
type inode struct{ dev, ino uint64 }

// A library is a file to which the programs are attached. They stay attached for a while after its last process: to
// attach them takes up to seconds, in which the first calls of the next job, or of a process that executes its program
// anew, would go unseen.
type library struct {
	inode   inode
	name    uint32 // by which the programs know it
	counter uint32 // where a process group keeps its next tag
	opFirst bool   // the first byte of an all-reduce's options is its operator, as in 1.12
	links   []link.Link
	users   int       // processes
	unused  time.Time // since when it has none, as a sweep has seen it; zero: it has some, or no sweep has seen it
	file    *os.File
	written syscall.Timespec // when the file or its inode was changed last, before the programs were attached
}

const (
	keep         = time.Minute // that the programs stay attached to a library without processes,
	maxLibraries = 64          // unless there are more libraries than that
)

// open opens the library's file.
func (l *library) open(path string) (err error) {
	if l.file, err = os.Open(path); err == nil {
		l.written, err = l.changedAt()
	}
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

// changedAt returns the time at which the file or its inode was changed last.
func (l *library) changedAt() (t syscall.Timespec, err error) {
	info, err := l.file.Stat()
	if err != nil {
		return t, err
	}
	return info.Sys().(*syscall.Stat_t).Ctim, nil
}

// changed reports whether the file was written or removed since the programs were attached, which are then in wrong
// places: a process that maps the file now would not survive them.
func (l *library) changed() bool {
	at, err := l.changedAt()
	return err != nil || at != l.written
}

// detach removes the programs, all at once: to remove a link, the kernel waits a quarter of a second until nobody is in
// its program.
func (l *library) detach() error {
	errs := make([]error, len(l.links)+1)
	var all sync.WaitGroup
	for i, a := range l.links {
		all.Go(func() { errs[i] = a.Close() })
	}
	all.Wait()
	if l.file != nil {
		errs[len(l.links)] = l.file.Close()
	}
	return errors.Join(errs...)
}

// A function is one that a library exports.
type function struct {
	offset, size uint64 // in the file; bytes
}

// functions returns the functions that a library exports, also one that is stripped of other symbols.
func functions(f *elf.File) (map[string]function, error) {
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("probe: %w", err)
	}
	all := map[string]function{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		for _, part := range f.Progs {
			if part.Type == elf.PT_LOAD && part.Flags&elf.PF_X != 0 && s.Value >= part.Vaddr && s.Value-part.Vaddr < part.Filesz {
				all[s.Name] = function{s.Value - part.Vaddr + part.Off, s.Size}
			}
		}
	}
	return all, nil
}

// code returns the machine code of a short function.
func (x function) code(f *elf.File) ([]byte, error) {
	code := make([]byte, min(x.size, 256))
	for _, part := range f.Progs {
		if part.Type == elf.PT_LOAD && x.size > 0 && x.offset >= part.Off && x.offset-part.Off < part.Filesz {
			_, err := part.ReadAt(code, int64(x.offset-part.Off))
			return code, err
		}
	}
	return nil, errors.New("probe: the code of a function is not in the file")
}

// entryOf returns the offset of a function's first instruction that does something. Before it may stand one that marks
// the targets of jumps (endbr64 of Intel's control-flow enforcement). The kernel interrupts a thread once more to
// single-step that one; the next one, a push in PyTorch's functions, it carries out itself, in a tenth of the time.
func (x function) entryOf(code []byte, machine elf.Machine) uint64 {
	if machine == elf.EM_X86_64 && bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}) {
		return x.offset + 4
	}
	return x.offset
}

var errCounter = errors.New("probe: nextTag is not understood: this release of PyTorch is not known")

// counterOf returns where in a process group the counter is that nextTag returns and increments: it is read and written
// at the same distance from some register, and nothing else is.
func counterOf(nextTag []byte, machine elf.Machine) (uint32, error) {
	var reads, writes []uint32
	switch machine {
	case elf.EM_X86_64:
		for i := 0; i+6 <= len(nextTag); i++ { // mov disp32(reg), reg, and its reverse
			op, mode := nextTag[i], nextTag[i+1]
			if mode>>6 != 2 || mode&7 == 4 || i > 0 && nextTag[i-1]>>4 == 4 { // with another kind of address, or 64 bits wide
				continue
			}
			at := binary.LittleEndian.Uint32(nextTag[i+2:])
			switch op {
			case 0x8b:
				reads = append(reads, at)
			case 0x89:
				writes = append(writes, at)
			}
		}
	case elf.EM_AARCH64:
		for i := 0; i+4 <= len(nextTag); i += 4 { // ldr w, [x, #at], and str
			op := binary.LittleEndian.Uint32(nextTag[i:])
			at := op >> 10 & 0xfff * 4
			switch op & 0xffc00000 {
			case 0xb9400000:
				reads = append(reads, at)
			case 0xb9000000:
				writes = append(writes, at)
			}
		}
	}
	const largest = 1 << 12 // bytes of a process group, with room
	if len(reads) != 1 || len(writes) != 1 || reads[0] != writes[0] || reads[0] > largest {
		return 0, errCounter
	}
	return reads[0], nil
}
