package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// neverHere are more of never, which only this architecture has.
var neverHere = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_MKNOD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB}
