package main

// Kernels of few rows wait for memory. A core of a Zen 3 takes one stream of lines with 15 to 21 GB/s and four with 18 to 26: its second-level cache
// follows several at once, each some lines ahead. So a kernel that is in one block of memory fetches the next one in four streams: at byte o of
// a block the lines at o/4 of each quarter of the next. All follows from the address of the weights, so streams go on over groups, panels and calls.
//
// Q8_0 did best with blocks of 128 KiB (both cores at once: 89 % of their read loops, 86 with 64 KiB; one core 89 and 85), the others with 64 (Q5_K 86,
// 81 with 128; 256 and 32 KiB were worse). Prefetching 1280 bytes ahead gave 78 %, two streams in halves of a panel 80. T1 was not worse than T0, and
// leaves the first-level cache alone.

const (
	streamBlock  = 64 << 10 // a power of two; its quarters of 16 KiB are four pages
	streamBlock8 = 128 << 10
	streamFrame  = 56 // of the panel loop W, Y, Panels; then End, Next, NextLen and the block
)

// streamArgs copies what aim needs to the stack, for registers have other uses within a group. R13 points to Args.
func streamArgs(e *gen, block int) {
	defer e.macro("STREAMS")()
	for i, f := range []string{"End", "Next", "NextLen"} {
		e.ld("R13", f, "AX")
		e.p("MOVQ AX, %d(SP)", 24+8*i)
	}
	e.p("MOVQ $%d, 48(SP)", block)
}

// aim points R11 to the first line of the first stream for weights at register at, and makes R14 the distance of the streams, R15 three of it. Where
// less than a block is left until End the streams are its quarters; where nothing is left they are those of Next.
func aim(e *gen, at string, block int) {
	defer e.macro("AIM")()
	e.p("MOVQ %s, R11", at)
	e.p("MOVQ R11, R15")
	e.p("ANDQ $-%d, R11", block)
	e.p("SUBQ R11, R15")
	e.p("SHRQ $2, R15")
	e.p("ADDQ $%d, R11", block)
	e.p("MOVQ 24(SP), R14")
	e.p("SUBQ R11, R14")
	e.p("CMOVQLE 32(SP), R11")
	e.p("CMOVQLE 40(SP), R14")
	e.p("CMPQ R14, 48(SP)")
	e.p("CMOVQHI 48(SP), R14")
	e.p("ADDQ $255, R14") // quarters are whole lines
	e.p("SHRQ $8, R14")
	e.p("SHLQ $6, R14")
	e.p("CMPQ R15, R14")
	e.p("CMOVQHI R14, R15")
	e.p("ADDQ R15, R11")
	e.p("LEAQ (R14)(R14*2), R15")
}

// fetchStream prefetches line i of those that the streams give in turn.
func fetchStream(e *gen, i int) {
	e.p("PREFETCHT1 %d(R11)%s", i/4*64, []string{"", "(R14*1)", "(R14*2)", "(R15*1)"}[i%4])
}

// streams tells whether the kernel fetches ahead like that. VNNI keeps its distances: no CPU that has AVX-VNNI alone was at hand.
func (k *int256) streams() bool { return k.loop && !k.vnni }

// block is the size of what is fetched ahead.
func (k *int256) block() int {
	if k.b.coding == whole {
		return streamBlock8
	}
	return streamBlock
}

// aim begins the streams of a group.
func (k *int256) aim() {
	if k.streams() {
		k.ahead = 0
		aim(k.e, "DI", k.block())
	}
}

// fetchStep prefetches for step i of n of a turn its share of the lines of the turn. They come as evenly as can be: in bunches where weights first touch
// a line, Q8_0 reached 86 % of both cores' read loop, so 90.
func (k *int256) fetchStep(i, n int) {
	if !k.streams() {
		return
	}
	b, lines := k.b, k.turn()*k.b.sumBytes()/64
	if b.coding == fives {
		lines += k.turn()
	}
	for k.ahead < lines*(i+1)/n {
		k.fetchNext()
	}
}

// fetchNext prefetches the next line.
func (k *int256) fetchNext() {
	fetchStream(k.e, k.ahead)
	k.ahead++
}

// even fetches what streams lack of as many lines as the first of them.
func (k *int256) even() {
	for k.streams() && k.ahead%4 != 0 {
		k.fetchNext()
	}
}

// nextTurn moves R11 behind a turn of the loop over a group, by a quarter of the lines of the turn: streams overlap where that is not whole lines.
func (k *int256) nextTurn() {
	if !k.streams() {
		return
	}
	n := k.ahead
	k.even()
	k.e.p("ADDQ $%d, R11", 16*n)
	k.ahead = 0
}
