package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_AARCH64

// neverHere are more of never, which only this architecture has.
var neverHere []uint32
