//go:build amd64 || arm64

package probe

import (
	"errors"
	"math"
	"os"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// NeedsSysAdmin reports whether the kernel may ask for CAP_SYS_ADMIN when programs are attached: without links of many
// uprobes it may.
func NeedsSysAdmin() bool { return !manyAtOnce() }

// manyAtOnce reports whether the kernel has links of many uprobes, as from Linux 6.6 on; vendors' kernels may lack
// them. Such a link takes CAP_BPF and CAP_PERFMON, where a uprobe by itself takes CAP_SYS_ADMIN (Linux 6.18 refuses it
// to a process with CAP_PERFMON alone). It is also removed at once, where single uprobes take 50 ms each.
var manyAtOnce = sync.OnceValue(func() bool { return hasMany(tryMany(), features.LinuxVersionCode) })

// hasMany judges the try, whose error is err. A process that may not even try goes by the kernel's version.
func hasMany(err error, version func() (uint32, error)) bool {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		v, err := version()
		return err == nil && v >= 6<<16|6<<8
	}
	return errors.Is(err, os.ErrNotExist)
}

// tryMany tries to attach a program to a process that there cannot be. os.ErrNotExist: the kernel has links of many
// uprobes, and has looked for the process.
func tryMany() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "many", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer program.Close()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return errors.Join(syscall.EPERM, err) // not the kernel's answer
	}
	const nobody = math.MaxInt32
	attached, err := self.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{1}, PID: nobody})
	if err == nil {
		return attached.Close()
	}
	return err
}
