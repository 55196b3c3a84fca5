//go:build !noasm

#include "textflag.h"

// func spin(n int)
// Requires: SSE2 (PAUSE is a NOP before it).
//
// PAUSE n times.
//
// CX rounds left.
TEXT ·spin(SB), NOSPLIT, $0-8
	MOVQ  n+0(FP), CX
	TESTQ CX, CX
	JLE   done

loop:
	PAUSE
	DECQ CX
	JNZ  loop

done:
	RET
