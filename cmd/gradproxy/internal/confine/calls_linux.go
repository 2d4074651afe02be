//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// never are the system calls that a proxy does not make after its start.
var never = []uint32{
	// Programs and other processes.
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	// Mounts, namespaces, files past their paths.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_MKNODAT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_FANOTIFY_INIT,
	// The kernel and the host.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON,
	unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_ADJTIMEX, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_PERSONALITY,
	// Parts of the kernel in which many of its faults were.
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_MEMFD_SECRET,
	// Other users and rights.
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETGROUPS, unix.SYS_SETFSUID,
	unix.SYS_SETFSGID, unix.SYS_CAPSET,
}

// netlinkOnly are the address families of a process that looks into others, for look-ups of sockets, or changes rules.
var netlinkOnly = []uint32{unix.AF_NETLINK}

// families are the address families of the sockets that a proxy opens: for the WAN and jobs, for the service manager,
// for rules and look-ups of sockets.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// mapCommands are the commands of bpf(2) that use maps and detach programs which are there.
var mapCommands = []uint32{unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_UPDATE_ELEM, unix.BPF_MAP_DELETE_ELEM, unix.BPF_MAP_GET_NEXT_KEY, unix.BPF_PROG_DETACH,
	unix.BPF_OBJ_GET_INFO_BY_FD, unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM, unix.BPF_MAP_LOOKUP_BATCH, unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH,
	unix.BPF_MAP_UPDATE_BATCH, unix.BPF_MAP_DELETE_BATCH, unix.BPF_LINK_DETACH}

// Offsets in struct seccomp_data (seccomp(2)). Arguments have 64 bits; the lower half comes first.
const (
	offNumber       = 0
	offArchitecture = 4
	offArguments    = 16
)

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	refuse = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	absent = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
)

// program returns the filter. It lists the calls that are refused, so that calls of later runtimes pass. Calls of
// another architecture are refused, or its numbers would go around the list.
func program(n Needs) []bpf.Instruction {
	p := []bpf.Instruction{
		load(offArchitecture), bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1}, refuse,
		load(offNumber),
	}
	if architecture == unix.AUDIT_ARCH_X86_64 { // x32 has that architecture, and numbers of its own
		p = append(p, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 1 << 30, SkipTrue: 1}, refuse)
	}
	refused := slices.Concat(never, neverHere)
	if !n.Trace {
		refused = append(refused, unix.SYS_PROCESS_VM_READV, unix.SYS_PERF_EVENT_OPEN)
	}
	for _, number := range refused {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, refuse)
	}
	// C's library then makes threads by clone, whose flags are visible here.
	p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, absent)
	p = when(p, unix.SYS_CLONE, load(offArguments), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipTrue: 1}, refuse, allow)
	sockets := families
	if n.Trace || n.Rules {
		sockets = netlinkOnly
	}
	p = when(p, unix.SYS_SOCKET, slices.Concat(
		[]bpf.Instruction{load(offArguments + 2*8), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_MPTCP, SkipTrue: 1}, refuse, load(offArguments)},
		oneOf(sockets))...)
	switch {
	case n.Trace:
	case n.Maps:
		p = when(p, unix.SYS_BPF, append([]bpf.Instruction{load(offArguments)}, oneOf(mapCommands)...)...)
	default:
		p = when(p, unix.SYS_BPF, refuse)
	}
	return append(p, allow)
}

func load(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }

// when appends instructions that end the program, for that system call.
func when(p []bpf.Instruction, number uint32, then ...bpf.Instruction) []bpf.Instruction {
	return append(append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(then))}), then...)
}

// oneOf allows the loaded values and refuses all others.
func oneOf(values []uint32) []bpf.Instruction {
	var p []bpf.Instruction
	for _, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, allow)
	}
	return append(p, refuse)
}

// filter puts the filter in force for all threads, which no_new_privs allows.
func filter(n Needs) error {
	raw, err := bpf.Assemble(program(n))
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	switch {
	case e == unix.ENOSYS || e == unix.EINVAL:
		return fmt.Errorf("this kernel has no filters of system calls (CONFIG_SECCOMP_FILTER): %w", e)
	case e == unix.EPERM:
		return filtered(e)
	case e != 0:
		return e
	case thread != 0:
		return errors.New("a thread has a filter of its own")
	}
	return nil
}

// filtered returns the error of a system call that a filter has refused, one that was in force before this process
// started: the kernel itself refuses these calls with another error.
func filtered(err error) error {
	return fmt.Errorf("a filter of system calls that this process was started with refuses it (SystemCallFilter= of its unit, or the seccomp profile of its container): %w", err)
}
