#include "textflag.h"

// func address() uintptr
TEXT ·address(SB), NOSPLIT, $0-8
	MOVD g, ret+0(FP)
	RET
