//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A wallClock makes the wall clock of one process jump, and of no other. The kernel has one wall clock for all
// processes, so the process gets another way to read it: a clock_gettime that adds an offset in memory, in the
// process's own copy of the vDSO (vdso(7)), which the Go runtime calls for the time. The monotonic clock and timers
// stay as they are.
type wallClock struct {
	memory *os.File // of the process
	at     int64    // address of the offset
}

// offsetReader is the machine code, by GOARCH, of a clock_gettime that adds a number of seconds to the wall clock. The
// number is the 8 bytes behind the code.
var offsetReader = map[string][]byte{
	"amd64": {
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x0a, // jnz ret: another clock than CLOCK_REALTIME
		0x48, 0x8b, 0x0d, 0x06, 0, 0, 0, // mov rcx, [rip+6]: behind the code
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3,       // ret
		0x90, 0x90, // up to a multiple of 8
	},
}

// errClock is wrapped by the errors of startWithClock. It says that the clock of a process cannot be made to jump here.
var errClock = errors.New("the clock of a process cannot jump")

// startWithClock starts a command, whose SysProcAttr must be set, with a clock that can jump. The caller closes the
// clock.
func startWithClock(cmd *exec.Cmd) (*wallClock, error) {
	code := offsetReader[runtime.GOARCH]
	if code == nil {
		return nil, fmt.Errorf("%w: it is not known how on %s", errClock, runtime.GOARCH)
	}
	runtime.LockOSThread() // the thread that starts the process traces it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true // it stops before its first instruction
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", errClock, err)
	}
	c, err := newWallClock(cmd.Process.Pid, code)
	if err == nil {
		err = syscall.PtraceDetach(cmd.Process.Pid)
	}
	if err != nil {
		if c != nil {
			c.memory.Close()
		}
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("%w: %w", errClock, err)
	}
	return c, nil
}

// newWallClock waits until a traced process has stopped, and replaces the clock_gettime of its vDSO by code.
func newWallClock(pid int, code []byte) (*wallClock, error) {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return nil, fmt.Errorf("the process does not stop: %v", err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	c := &wallClock{memory: memory}
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || !strings.Contains(line, "[vdso]") {
			continue
		}
		image := make([]byte, to-from)
		if _, err := memory.ReadAt(image, from); err != nil {
			return c, err
		}
		at, err := clockReader(image, len(code)+8)
		if err != nil {
			return c, err
		}
		if _, err := memory.WriteAt(append(code[:len(code):len(code)], make([]byte, 8)...), from+at); err != nil {
			return c, err
		}
		c.at = from + at + int64(len(code))
		return c, nil
	}
	return c, errors.New("it has no vDSO")
}

// clockReader returns the offset of clock_gettime in the image of a vDSO. The function must have at least n bytes.
func clockReader(image []byte, n int) (at int64, err error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(n) && s.Value <= uint64(len(image)-n) {
			return int64(s.Value), nil
		}
	}
	return 0, fmt.Errorf("its vDSO has no clock_gettime of %d bytes", n)
}

// jump sets the difference of the process's wall clock to the host's to d, in whole seconds.
func (c *wallClock) jump(d time.Duration) error {
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(d/time.Second))), c.at)
	return err
}

func (c *wallClock) close() { c.memory.Close() }
