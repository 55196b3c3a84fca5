//go:build !noasm

#include "textflag.h"

#define SYS_clone 56
#define SYS_exit 60
#define SYS_futex 202

// func start(flags uintptr, stack unsafe.Pointer, tid, gate *uint32) (errno uintptr)
//
// The new thread waits for gate and ends:
//
//	for *gate == 0 { futex(gate, FUTEX_WAIT, 0) }
//	exit(0)
//
// R12 gate, which system calls and the new thread keep; the thread touches no stack.
TEXT ·start(SB), NOSPLIT, $0-40
	MOVQ flags+0(FP), DI
	MOVQ stack+8(FP), SI
	XORL DX, DX
	MOVQ tid+16(FP), R10
	XORL R8, R8
	MOVQ gate+24(FP), R12
	MOVL $SYS_clone, AX
	SYSCALL
	TESTQ AX, AX
	JEQ   thread
	JGT   parent
	NEGQ  AX
	MOVQ  AX, errno+32(FP)
	RET

parent:
	MOVQ $0, errno+32(FP)
	RET

thread:
	MOVL  (R12), AX
	TESTL AX, AX
	JNE   end
	MOVL  $SYS_futex, AX
	MOVQ  R12, DI
	XORL  SI, SI          // FUTEX_WAIT
	XORL  DX, DX
	XORL  R10, R10
	SYSCALL
	JMP   thread

end:
	MOVL $SYS_exit, AX
	XORL DI, DI
	SYSCALL
	INT  $3
