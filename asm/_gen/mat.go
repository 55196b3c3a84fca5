package main

import "fmt"

// Kernels of package mat: sums of products of two panels of float64, a tile of them in registers.

// matDoc heads the kernel of a width in the assembly.
const matDoc = `A tile of %d x %d sums, %d accumulators.

	for each row: load %d columns of B; for each column of A: broadcast it, sums += it * B

%s0.. accumulators, row after row; behind them the columns of B, then the broadcasts in turn. SI A, DX B, DI C; CX rows left, BX
bytes between rows of C.`

// rowsDoc heads the kernel of Rows.
const rowsDoc = `Four rows A, as many columns as a turn has: y += c0 A0, c1 A1, c2 A2, c3 A3 in that order; sums of A0..A3 times x.

The sums come first in the registers, then the factors, a column of y, one of x, one of a row. R8-R11 rows, SI x, DI y, AX the place
in them; CX turns left.`

// matKernel is the kernel of a width.
type matKernel struct {
	*gen
	letter        string // of the registers
	lanes         int    // float64 of a register
	high, vectors int    // of the tile: rows, and registers of a row
	broadcasts    int    // registers for them
}

// mats writes the kernel of a width.
func mats(wide bool) *gen {
	k := &matKernel{letter: "Y", lanes: 4, high: 4, vectors: 3, broadcasts: 1}
	tier, suffix := "avx2", "AVX2"
	if wide {
		k = &matKernel{letter: "Z", lanes: 8, high: 8, vectors: 3, broadcasts: 2}
		tier, suffix = "avx512", "AVX512"
	}
	k.gen = newGen("mat", "mat_"+tier, "args")
	k.describe(fmt.Sprintf(matDoc, k.high, k.vectors*k.lanes, k.high*k.vectors, k.vectors*k.lanes, k.letter))
	k.kernel("add" + suffix)
	k.rows("rows" + suffix)
	return k.gen
}

// rows writes the kernel of Rows: Lanes columns a turn. Registers: rows of lanes of the four sums, then the factors, a
// column of y, of x and of a row.
func (k *matKernel) rows(name string) {
	k.args = operandsOf("mat", "rowArgs")
	lanes := constOf("mat", "Lanes")
	each := lanes / k.lanes // registers of a turn
	reg := func(n int) string { return fmt.Sprintf("%s%d", k.letter, n) }
	sum := func(r, h int) string { return reg(r*each + h) }
	factor := func(r int) string { return reg(4*each + r) }
	y, x, row := reg(4*each+4), reg(4*each+5), reg(4*each+6)
	rows := []string{"R8", "R9", "R10", "R11"}
	k.describe(rowsDoc)
	k.fn(name, "adds to each of y the products of four rows and their factors, and keeps the lanes of the rows' products with x.")
	k.arg("BX")
	for i, r := range rows {
		k.p("MOVQ %d(BX), %s", k.args.at("A")+8*i, r)
	}
	k.p("MOVQ %d(BX), SI", k.args.at("X"))
	k.p("MOVQ %d(BX), DI", k.args.at("Y"))
	k.p("MOVQ %d(BX), DX", k.args.at("C"))
	k.p("MOVQ %d(BX), CX", k.args.at("Turns"))
	for r := range 4 {
		k.p("VBROADCASTSD %d(DX), %s", 8*r, factor(r))
		for h := range each {
			k.p("VXORPD X%d, X%[1]d, X%[1]d", r*each+h)
		}
	}
	k.p("XORQ AX, AX")
	k.p("PCALIGN $32")
	k.lab(name + "_l")
	for h := range each {
		at := 8 * k.lanes * h
		k.p("VMOVUPD %d(DI)(AX*1), %s", at, y)
		k.p("VMOVUPD %d(SI)(AX*1), %s", at, x)
		for r, from := range rows {
			k.p("VMOVUPD %d(%s)(AX*1), %s", at, from, row)
			k.p("VFMADD231PD %s, %s, %s", row, factor(r), y)
			k.p("VFMADD231PD %s, %s, %s", row, x, sum(r, h))
		}
		k.p("VMOVUPD %s, %d(DI)(AX*1)", y, at)
	}
	k.p("ADDQ $%d, AX", 8*lanes)
	k.p("DECQ CX")
	k.p("JNZ %s_l", name)
	k.p("MOVQ %d(BX), DX", k.args.at("Sums"))
	for r := range 4 {
		for h := range each {
			k.p("VMOVUPD %s, %d(DX)", sum(r, h), 8*(r*lanes+h*k.lanes))
		}
	}
	k.ret()
}

// Registers of accumulators, of columns of B, of broadcasts.
func (k *matKernel) sum(i, j int) string { return fmt.Sprintf("%s%d", k.letter, i*k.vectors+j) }
func (k *matKernel) b(j int) string      { return fmt.Sprintf("%s%d", k.letter, k.high*k.vectors+j) }
func (k *matKernel) a(i int) string {
	return fmt.Sprintf("%s%d", k.letter, (k.high+1)*k.vectors+i%k.broadcasts)
}

func (k *matKernel) kernel(name string) {
	columns := constOf("mat", "Columns")
	k.fn(name, "adds the products of a tile's columns of A and B, row by row, to its sums.")
	k.arg("BX")
	k.lds("BX", [2]string{"A", "SI"}, [2]string{"B", "DX"}, [2]string{"C", "DI"}, [2]string{"Rows", "CX"})
	k.ld("BX", "Stride", "BX")
	k.p("MOVQ DI, AX")
	k.each("AX", func(i, j int) { k.p("VMOVUPD %d(AX), %s", 8*k.lanes*j, k.sum(i, j)) })
	k.p("PCALIGN $32")
	k.lab(name + "_l")
	for j := range k.vectors {
		k.p("VMOVUPD %d(DX), %s", 8*k.lanes*j, k.b(j))
	}
	for i := range k.high {
		k.p("VBROADCASTSD %d(SI), %s", 8*i, k.a(i))
		for j := range k.vectors {
			k.p("VFMADD231PD %s, %s, %s", k.b(j), k.a(i), k.sum(i, j))
		}
	}
	k.p("ADDQ $%d, SI", 8*columns)
	k.p("ADDQ $%d, DX", 8*columns)
	k.p("DECQ CX")
	k.p("JNZ %s_l", name)
	k.each("DI", func(i, j int) { k.p("VMOVUPD %s, %d(DI)", k.sum(i, j), 8*k.lanes*j) })
	k.ret()
}

// each goes over the tile's registers; behind each row register at moves on in C.
func (k *matKernel) each(at string, f func(i, j int)) {
	for i := range k.high {
		for j := range k.vectors {
			f(i, j)
		}
		if i+1 < k.high {
			k.p("ADDQ BX, %s", at)
		}
	}
}
