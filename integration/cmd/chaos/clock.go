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

// A wallClock makes the wall clock of one process jump, and no other's. The kernel has one wall clock for all, so the
// process gets another reader of it: its own copy of the vDSO (vdso(7)), which the Go runtime calls for the time, has a
// clock_gettime that adds an offset in memory. The monotonic clock and timers are as they were.
type wallClock struct {
	memory *os.File // of the process
	at     int64    // address of the offset
}

// offsetReader is a clock_gettime that adds a number of seconds, which stands behind it, to the wall clock's.
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

// errClock is wrapped by errors of start: clocks of processes cannot be made to jump here.
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

// newWallClock changes the vDSO of a process that is about to stop.
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

// clockReader returns where a vDSO has its clock_gettime, which must have n bytes.
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

// jump has the clock be d from the host's.
func (c *wallClock) jump(d time.Duration) error {
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(d/time.Second))), c.at)
	return err
}

func (c *wallClock) close() { c.memory.Close() }
