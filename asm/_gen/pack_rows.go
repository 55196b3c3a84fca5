package main

import "fmt"

// packDoc heads the kernels of packer in the assembly.
const packDoc = `Packing: SI, R8, R9, R10 point to rows 0, 4, 8, 12 at the current group, R11 is the stride, R12 three times
that, R13 the prefetch distance, R14 a row to prefetch, DI the destination, CX counts groups, AX turns or is free; blocks: BX scales, DX fifth bits.`

// packer emits the kernels that packDoc describes.
type packer struct {
	vec
	onLoad func()
}

// kernel emits a kernel whose body packs one group.
func (p *packer) kernel(k packing) {
	name := p.tier() + "Pack" + k.name
	p.describe(packDoc)
	p.fn(name, fmt.Sprintf("packs Groups x %d bytes of 16 rows to Groups x %d bytes.", k.step, k.group))
	p.arg("BX")
	p.lds("BX", [2]string{"Src", "SI"}, [2]string{"Stride", "R11"}, [2]string{"Dst", "DI"}, [2]string{"Groups", "CX"}, [2]string{"Pf", "R13"})
	p.p("LEAQ (R11)(R11*2), R12")
	p.p("LEAQ (SI)(R11*4), R8")
	p.p("LEAQ (R8)(R11*4), R9")
	p.p("LEAQ (R9)(R11*4), R10")
	p.lab(name + "_l")
	looped := k.turns > 1
	if looped && !k.near {
		p.p("LEAQ (SI)(R13*1), R14")
	}
	p.onLoad = func() {}
	if k.open != nil {
		k.open(p)
	}
	if looped {
		p.p("MOVL $%d, AX", k.turns)
		p.lab(name + "_t")
	}
	p.turn(k)
	if looped {
		p.advance(k.src, k.dst)
		p.p("DECQ AX")
		p.p("JNZ %s_t", name)
	}
	p.advance(k.step-k.turns*k.src, k.group-k.turns*k.dst)
	p.p("DECQ CX")
	p.p("JNZ %s_l", name)
	p.ret()
}

// turn emits the body of the loop over a group, with prefetches spread over its loads: 64 at once would wait for each other, and nothing
// would be under way later.
func (p *packer) turn(k packing) {
	ahead := k.ahead()
	start, loads := len(p.items), 0
	p.onLoad = func() { loads++ }
	k.body(p)
	p.items = p.items[:start]
	quota := (len(ahead) + loads - 1) / loads
	p.onLoad = func() {
		for range min(quota, len(ahead)) {
			p.p("%s", ahead[0])
			ahead = ahead[1:]
		}
	}
	k.body(p)
}

// ahead is the prefetches of a turn: of its share of the rows; without a loop line by line of all rows (row by row, Q6_K came from memory
// at 0.83 to 0.91 times the rate).
func (k *packing) ahead() (ins []string) {
	lines := (k.step + 63) / 64
	switch {
	case k.near:
	case k.turns == 1:
		for i := range 16 * lines {
			row := i % 16
			ins = append(ins, fmt.Sprintf("LEAQ (%s)(R13*1), AX\n\tPREFETCHT0 %s", packBase[row/4], packRow("AX", row%4, i/16*64)))
		}
	default:
		for range 16 / k.turns {
			for i := range lines {
				ins = append(ins, fmt.Sprintf("PREFETCHT0 %d(R14)", 64*i))
			}
			ins = append(ins, "ADDQ R11, R14")
		}
	}
	return ins
}

// advance moves the pointers to rows and destination.
func (p *packer) advance(src, dst int) {
	if src > 0 {
		for _, b := range packBase {
			p.p("ADDQ $%d, %s", src, b)
		}
	}
	if dst > 0 {
		p.p("ADDQ $%d, DI", dst)
	}
}

var packBase = [4]string{"SI", "R8", "R9", "R10"}

// packRow is the address of row i of four from base on.
func packRow(base string, i, off int) string {
	return fmt.Sprintf("%d(%s)%s", off, base, []string{"", "(R11*1)", "(R11*2)", "(R12*1)"}[i])
}

// load fills vectors 0..3 with the 16 bytes at off of each row, lane j of vector i from row 4j+i.
func (p *packer) load(off int) {
	p.onLoad()
	defer p.macro("LOAD")()
	for i := range 4 {
		at := func(j int) string { return packRow(packBase[j], i, off) }
		if p.wide {
			p.p("VMOVDQU %s, X%d", at(0), i)
			for j := 1; j < 4; j++ {
				p.p("VINSERTI32X4 $%d, %s, Z%d, Z%d", j, at(j), i, i)
			}
			continue
		}
		for h := range 2 {
			p.p("VMOVDQU %s, X%d", at(2*h), 2*i+h)
			p.p("VINSERTI128 $1, %s, Y%d, Y%d", at(2*h+1), 2*i+h, 2*i+h)
		}
	}
}

// unit makes vector d (0..3) the dwords at off+4d of the rows. It uses vectors 4 to 7.
func (p *packer) unit(off int) {
	p.load(off)
	defer p.macro("TRANSPOSE")()
	for i := range 2 {
		p.o("VPUNPCKLDQ", reg(2*i+1), reg(2*i), reg(4+2*i))
		p.o("VPUNPCKHDQ", reg(2*i+1), reg(2*i), reg(5+2*i))
	}
	for i := range 2 {
		p.o("VPUNPCKLQDQ", reg(6+i), reg(4+i), reg(2*i))
		p.o("VPUNPCKHQDQ", reg(6+i), reg(4+i), reg(2*i+1))
	}
}

// dword makes vector 0 dword d (0, 3) of the 16 bytes at off, and vector 3 its neighbour (1, 2).
func (p *packer) dword(off, d int) {
	p.load(off)
	ins, first, second := "VPUNPCKLDQ", "VPUNPCKLQDQ", "VPUNPCKHQDQ"
	if d == 3 {
		ins, first, second = "VPUNPCKHDQ", second, first
	}
	p.o(ins, reg(1), reg(0), reg(1))
	p.o(ins, reg(3), reg(2), reg(2))
	p.o(first, reg(2), reg(1), reg(0))
	p.o(second, reg(2), reg(1), reg(3))
}

// copy stores the four vectors of the 16 bytes at off one after another.
func (p *packer) copy(off, dst int) {
	p.unit(off)
	defer p.macro("STORE")()
	for i := range 4 {
		p.store(reg(i), dst+64*i)
	}
}

func (p *packer) move(src, dst any) {
	if p.wide {
		p.o("VMOVDQU32", src, dst)
	} else {
		p.o("VMOVDQU", src, dst)
	}
}

func (p *packer) store(r reg, dst int) { p.move(r, f32(dst, "DI")) }

// lowWords and highWords store one half of each dword of r at dst(base): 32 bytes. They use vectors 6 and 7.
func (p *packer) lowWords(r reg, base string, dst int) {
	defer p.macro("LOW")()
	if p.wide {
		p.p("VPMOVDW Z%d, %d(%s)", r, dst, base)
		return
	}
	p.and(packWord(0x0000ffff), r, 7)
	p.storeWords(base, dst)
}

func (p *packer) highWords(r reg, base string, dst int) {
	defer p.macro("HIGH")()
	p.o("VPSRLD", "$16", r, reg(7))
	if p.wide {
		p.p("VPMOVDW Z7, %d(%s)", dst, base)
		return
	}
	p.storeWords(base, dst)
}

// storeWords stores the low halves of vector 7, whose high ones are 0.
func (p *packer) storeWords(base string, dst int) {
	p.p("VPACKUSDW Y15, Y14, Y14")
	p.p("VPERMQ $0xd8, Y14, Y14")
	p.p("VMOVDQU Y14, %d(%s)", dst, base)
}

// bytes stores byte j of each row's dword in r at dst+16j. It uses vectors 6 and 7.
func (p *packer) bytes(r reg, dst int) {
	defer p.macro("BYTES")()
	p.o("VPSHUFB", mem{base: "packbytes<>(SB)"}, r, reg(7))
	if p.wide {
		p.p("VMOVDQU32 packlanes<>(SB), Z6")
		p.p("VPERMD Z7, Z6, Z7")
		p.store(7, dst)
		return
	}
	p.p("VMOVDQU packlanes<>(SB), Y13")
	p.p("VPERMD Y14, Y13, Y14") // bytes j of rows 0..7 in qword j
	p.p("VPERMD Y15, Y13, Y15") // rows 8..15
	p.p("VPUNPCKLQDQ Y15, Y14, Y13")
	p.p("VPUNPCKHQDQ Y15, Y14, Y14")
	for i := range 2 {
		p.p("VMOVDQU X%d, %d(DI)", 13+i, dst+16*i)
		p.p("VEXTRACTI128 $1, Y%d, %d(DI)", 13+i, dst+32+16*i)
	}
}
