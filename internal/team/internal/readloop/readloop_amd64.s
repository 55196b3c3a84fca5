//go:build !noasm

#include "textflag.h"

// func xor(p unsafe.Pointer, n int) uint64
//
// sum ^= p[i] for i in 0..n-1.
//
// SI p, CX words left, R14 sum (g's register, as a kernel may use it), X15 not zero (as a kernel may leave it).
TEXT ·xor(SB), NOSPLIT, $0-24
	MOVQ    p+0(FP), SI
	MOVQ    n+8(FP), CX
	PCMPEQB X15, X15
	XORQ    R14, R14

loop:
	TESTQ CX, CX
	JE    done
	XORQ  (SI), R14
	ADDQ  $8, SI
	DECQ  CX
	JMP   loop

done:
	MOVQ R14, ret+16(FP)
	RET
