// Registers at the entry of a function, by the calling conventions of C++ on Linux. The kernel's struct is
// struct pt_regs on x86 (arch/x86/include/uapi/asm/ptrace.h) and begins with struct user_pt_regs on arm64.

#pragma once

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->cx)
// Of a method that returns an object in memory: the object's place is the first argument.
#define MEMBER_THIS(r) ((r)->si)
#define MEMBER_ARG1(r) ((r)->dx)
#define MEMBER_ARG2(r) ((r)->cx)

#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 x[31], sp, pc, pstate;
};
#define ARG1(r) ((r)->x[0])
#define ARG2(r) ((r)->x[1])
#define ARG3(r) ((r)->x[2])
#define ARG4(r) ((r)->x[3])
// The place of a returned object is in a register of its own, x8.
#define MEMBER_THIS(r) ((r)->x[0])
#define MEMBER_ARG1(r) ((r)->x[1])
#define MEMBER_ARG2(r) ((r)->x[2])

#else
#error "no calling convention is known for this architecture"
#endif
