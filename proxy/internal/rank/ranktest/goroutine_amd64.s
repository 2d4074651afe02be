#include "textflag.h"

// func address() uintptr
TEXT ·address(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ AX, ret+0(FP)
	RET
