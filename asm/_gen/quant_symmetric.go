package main

// Registers of symmetric and descents. sXO and sQO are sums without an element, sOther is another code.
const (
	sTop = iota
	sR
	sXQ
	sQQ
	sT
	sU
	sX
	sWX
	sCode
	sXO
	sQO
	sOther
)

// extreme sets sTop to the element of the largest magnitude, the first of several, and mask 3 to the lanes where it is
// not negligible.
func (v *lanes) extreme(f string) {
	v.zero(sTop)
	v.zero(sT)
	v.each(f+"_x", 4, 0, func(x, _, _ mem) {
		v.load(x, sX)
		v.magnitude(sX, sU)
		v.compare(sU, isGreater, sT, 1)
		v.where(1, sU, sT)
		v.where(1, sX, sTop)
	})
	v.compare(sT, isNotLess, row("lanec", cNegligible), 3)
}

// extremes finds the extent of blocks and their elements of the largest magnitude.
func (v *lanes) extremes() {
	const low, high = sXQ, sQQ
	v.search("Extremes", "sets Low and High to the extent of X, Scale to the element of the largest magnitude.", func(f string) {
		v.load(v.at("X", 0), low)
		v.mov(low, high)
		v.zero(sTop)
		v.zero(sT)
		v.each(f+"_x", 4, 0, func(x, _, _ mem) {
			v.load(x, sX)
			v.less(sX, low, low)
			v.more(sX, high, high)
			v.magnitude(sX, sU)
			v.compare(sU, isGreater, sT, 1)
			v.where(1, sU, sT)
			v.where(1, sX, sTop)
		})
		v.store(low, v.at("Low", 0))
		v.store(high, v.at("High", 0))
		v.store(sTop, v.at("Scale", 0))
	})
}

// symmetric is searchSymmetric of internal/quant. The first of Steps is -n; Q has the products of W and X.
func (v *lanes) symmetric() {
	const low, high, best = sXO, sQO, sOther
	v.search("Symmetric", "searches Scale of codes Minimum..Highest.", func(f string) {
		v.extreme(f)
		v.broadcast("Minimum", low)
		v.broadcast("Highest", high)
		v.each(f+"_w", 4, 0, func(x, w, q mem) {
			v.load(w, sX)
			v.mul(x, sX, sX)
			v.store(sX, q)
		})
		v.p("LEAQ %d(R13), R9", v.args.at("Steps"))
		v.ld("R13", "Tries", "R10")
		v.p("VBROADCASTSS (R9), %s", v.name(sR))
		v.div(sR, sTop, sR)
		v.store(sR, v.at("R", 0))
		v.symmetricSums(f+"_c", low, high)
		v.zero(sT)
		v.compare(sQQ, isNotEqual, sT, 1)
		v.div(sXQ, sQQ, sU)
		v.keep(1, sU, sU)
		v.store(sU, v.at("Scale", 0))
		v.mul(sU, sXQ, best)
		v.p("JMP %s_next", f)
		v.lab(f + "_try")
		v.p("VBROADCASTSS (R9), %s", v.name(sR))
		v.div(sR, sTop, sR)
		v.symmetricSums(f+"_t", low, high)
		v.zero(sT)
		v.compare(sQQ, isGreater, sT, 1)
		v.mul(sXQ, sXQ, sT)
		v.mul(best, sQQ, sU)
		v.compare(sT, isGreater, sU, 2)
		v.both(1, 2, 1)
		v.jumpIfNone(1, f+"_next")
		v.div(sXQ, sQQ, sU)
		v.mul(sU, sXQ, sT)
		v.where(1, sT, best)
		v.storeWhere(1, sU, v.at("Scale", 0), sT)
		v.storeWhere(1, sR, v.at("R", 0), sT)
		v.lab(f + "_next")
		v.p("ADDQ $4, R9")
		v.p("DECQ R10")
		v.p("JNZ %s_try", f)
		v.keepLive("Scale", "R")
	})
}

// keepLive makes fields zero in the lanes that mask 3 does not have.
func (v *lanes) keepLive(fields ...string) {
	for _, field := range fields {
		v.load(v.at(field, 0), sT)
		v.keep(3, sT, sT)
		v.store(sT, v.at(field, 0))
	}
}

// symmetricSums sets sXQ and sQQ to the sums over codes of step 1/sR.
func (v *lanes) symmetricSums(label string, low, high int) {
	v.zero(sXQ)
	v.zero(sQQ)
	v.each(label, 8, 0, func(x, w, q mem) {
		v.mul(x, sR, sT)
		v.o("VMAXPS", low, sT, sT)
		v.o("VMINPS", high, sT, sT)
		v.round(sT, sT)
		v.mul(q, sT, sU)
		v.add(sU, sXQ, sXQ)
		v.mul(w, sT, sU)
		v.mul(sU, sT, sU)
		v.add(sU, sQQ, sQQ)
	})
}

// descent is searchSymmetricDescent of internal/quant; the codes are left at Q, from Minimum on. W is overwritten.
func (v *lanes) descent() {
	v.search("Descent", "searches Scale and codes Q, Minimum..Highest, code by code; W is X*X.", func(f string) {
		v.extreme(f)
		v.broadcast("Steps", sR)
		v.div(sR, sTop, sR)
		v.none(4)
		v.descentStart(f+"_c", true)
		v.descentRounds(f, true)
		v.descentEnd()
	})
}

// positive is searchPositive of internal/quant; the codes are left at Q.
func (v *lanes) positive() {
	const best, d = sXO, sQO
	v.search("Positive", "searches Scale and codes Q, 0..Highest, of X that are not negative.", func(f string) {
		v.load(v.at("X", 0), sTop)
		v.none(4)
		v.each(f+"_x", 4, 0, func(x, _, _ mem) {
			v.load(x, sX)
			v.compare(sX, isNotLeast, row("lanec", cZero), 1)
			v.either(1, 4, 4)
			v.more(sX, sTop, sTop)
		})
		v.compare(sTop, isNotLess, row("lanec", cNegligible), 3)
		v.p("LEAQ %d(R13), R9", v.args.at("Steps"))
		v.ld("R13", "Tries", "R10")
		v.p("VBROADCASTSS (R9), %s", v.name(sR))
		v.div(sR, sTop, sR)
		v.mul(sR, sTop, sT)
		v.compare(sT, isNotLess, row("lanec", cInRange), 1)
		v.either(1, 4, 4)
		v.broadcast("Highest", sOther)
		v.store(sR, v.at("R", 0))
		v.positiveError(f+"_c", d)
		v.mov(sU, best)
		v.p("JMP %s_next", f)
		v.lab(f + "_try")
		v.p("VBROADCASTSS (R9), %s", v.name(sR))
		v.div(sR, sTop, sR)
		v.positiveError(f+"_t", d)
		v.compare(sU, isLess, best, 1)
		v.where(1, sU, best)
		v.storeWhere(1, sR, v.at("R", 0), sT)
		v.lab(f + "_next")
		v.p("ADDQ $4, R9")
		v.p("DECQ R10")
		v.p("JNZ %s_try", f)
		v.load(v.at("R", 0), sR)
		v.descentStart(f+"_s", false)
		v.descentRounds(f, false)
		v.descentEnd()
	})
}

// positiveError sets sU to the error of codes of step 1/sR; sOther is the highest.
func (v *lanes) positiveError(label string, d int) {
	v.load(row("lanec", c1), sT)
	v.div(sT, sR, d)
	v.zero(sU)
	v.each(label, 8, 0, func(x, w, _ mem) {
		v.load(x, sX)
		v.mul(sX, sR, sT)
		v.round(sT, sT)
		v.o("VMINPS", sOther, sT, sT)
		v.mul(d, sT, sT)
		v.sub(sX, sT, sT)
		v.mul(w, sT, sX)
		v.mul(sX, sT, sT)
		v.add(sT, sU, sU)
	})
}

// clamp limits r to the codes.
func (v *lanes) clamp(r int, symmetric bool, t int) {
	if symmetric {
		v.broadcast("Minimum", t)
		v.more(r, t, r)
	}
	v.broadcast("Highest", t)
	v.less(r, t, r)
}

// descentStart makes the codes of step 1/sR and their sums.
func (v *lanes) descentStart(label string, symmetric bool) {
	v.zero(sXQ)
	v.zero(sQQ)
	v.each(label, 4, 0, func(x, w, q mem) {
		v.load(x, sX)
		v.mul(sR, sX, sT)
		v.round(sT, sCode)
		v.clamp(sCode, symmetric, sT)
		v.store(sCode, q)
		v.mul(w, sX, sT)
		v.mul(sCode, sT, sT)
		v.add(sT, sXQ, sXQ)
		v.mul(w, sCode, sT)
		v.mul(sCode, sT, sT)
		v.add(sT, sQQ, sQQ)
	})
}

// descentRounds improves the codes up to five times. In the lanes of mask 2 something changed in a round, kept as words
// at Best.
func (v *lanes) descentRounds(f string, symmetric bool) {
	v.p("MOVL $5, R11")
	v.lab(f + "_round")
	v.none(2)
	v.each(f+"_d", 1, 0, func(x, w, q mem) { v.descentElement(x, w, q, symmetric) })
	v.jumpIfNone(2, f+"_done")
	v.p("DECL R11")
	v.p("JNZ %s_round", f)
	v.lab(f + "_done")
}

// descentElement tries another code for an element, the nearest by the best scale of the others. Mask 1 has the lanes
// where that is better.
func (v *lanes) descentElement(x, w, q mem, symmetric bool) {
	v.load(x, sX)
	v.load(q, sCode)
	v.mul(w, sX, sWX)
	v.mul(sCode, sWX, sT)
	v.sub(sXQ, sT, sXO)
	v.mul(w, sCode, sT)
	v.mul(sCode, sT, sT)
	v.sub(sQQ, sT, sQO)
	v.compare(sXO, isGreater, row("lanec", cZero), 1)
	if !symmetric {
		v.also(1, sQO, isGreater, row("lanec", cZero))
	}
	v.mul(sX, sQO, sOther)
	v.div(sOther, sXO, sOther)
	v.magnitude(sOther, sT)
	v.unfit(1, sT)
	v.round(sOther, sOther)
	v.clamp(sOther, symmetric, sT)
	v.also(1, sOther, isNotEqual, sCode)
	v.mul(sWX, sOther, sT)
	v.add(sT, sXO, sXO)
	v.mul(w, sOther, sT)
	v.mul(sOther, sT, sT)
	v.add(sT, sQO, sQO)
	if symmetric {
		v.also(1, sQO, isGreater, row("lanec", cZero))
	}
	v.mul(sXO, sXO, sT)
	v.mul(sQQ, sT, sT)
	v.mul(sXQ, sXQ, sU)
	v.mul(sQO, sU, sU)
	v.also(1, sT, isGreater, sU)
	v.where(1, sXO, sXQ)
	v.where(1, sQO, sQQ)
	v.where(1, sOther, sCode)
	v.store(sCode, q)
	v.either(1, 2, 2)
}

// also takes the lanes from mask m where a is not so to b. It uses register sR in 256-bit code.
func (v *lanes) also(m, a int, is string, b any) {
	if v.wide {
		v.p("VCMPPS %s, %s, Z%d, K%d, K%d", is, v.name(b), a, m, m)
		return
	}
	v.o("VCMPPS", is, b, a, sR)
	v.p("VANDPS %s, %s, %s", v.name(sR), v.mask(m), v.mask(m))
}

// unfit adds to mask 4 the lanes of mask m where a is out of the range where it is rounded well.
func (v *lanes) unfit(m, a int) {
	if v.wide {
		v.p("VCMPPS %s, %s, Z%d, K%d, K5", isNotLess, v.name(row("lanec", cInRange)), a, m)
		v.p("KORW K5, K4, K4")
		return
	}
	v.o("VCMPPS", isNotLess, row("lanec", cInRange), a, sR)
	v.p("VANDPS %s, %s, %s", v.name(sR), v.mask(m), v.name(sR))
	v.p("VORPS %s, %s, %s", v.name(sR), v.mask(4), v.mask(4))
}

// descentEnd stores Scale, and zeros in lanes of negligible elements.
func (v *lanes) descentEnd() {
	v.compare(sQQ, isGreater, row("lanec", cZero), 1)
	v.both(1, 3, 1)
	v.div(sXQ, sQQ, sT)
	v.keep(1, sT, sT)
	v.store(sT, v.at("Scale", 0))
	v.storeMask(3, v.at("R", 0), sT)
	v.both(3, 4, 4)
	v.storeMask(4, v.at("Bad", 0), sT)
}
