package main

// Registers of affine.
const (
	aLow = iota
	aR
	aQ
	aQQ
	aXQ
	aT
	aX
	aU
	aScale
	aMin
	aError
	aHighest
)

// affine is searchAffine of internal/quant: High, Lowest, SumW, SumX, Best are lane variables. Mask 4 collects lanes
// that leave the range where codes are exact.
func (v *lanes) affine(name string, absolute bool) {
	v.search(name, "searches Scale and Low of codes 0..Highest.", func(f string) {
		v.affineOpen(f)
		v.div(aHighest, aX, aR)
		v.load(row("lanec", c1), aT)
		v.div(aT, aR, aScale)
		v.mov(aLow, aMin)
		v.affineCheck()
		v.affineSums(f+"_c", false)
		v.affineError(f+"_e", absolute)
		v.load(v.at("Best", 0), aT) // 0 in constant lanes, else all bits
		v.o("VANDPS", aError, aT, aT)
		v.store(aT, v.at("Best", 0))
		v.store(aScale, v.at("Scale", 0))
		v.store(aR, v.at("R", 0))
		v.store(aLow, v.at("RLow", 0))
		v.p("LEAQ %d(R13), R9", v.args.at("Steps"))
		v.ld("R13", "Tries", "R10")
		v.lab(f + "_try")
		v.load(v.at("High", 0), aX)
		v.sub(aX, aLow, aX)
		v.p("VBROADCASTSS (R9), %s", v.name(aR))
		v.div(aR, aX, aR)
		v.affineCheck()
		v.affineSums(f+"_t", true)
		v.affineFit(f + "_fit")
		v.affineError(f+"_f", absolute)
		v.load(v.at("Best", 0), aT)
		v.compare(aError, isLess, aT, 2)
		v.both(1, 2, 1)
		v.jumpIfNone(1, f+"_next")
		v.where(1, aError, aT)
		v.store(aT, v.at("Best", 0))
		v.storeWhere(1, aScale, v.at("Scale", 0), aT)
		v.storeWhere(1, aR, v.at("R", 0), aT)
		v.storeWhere(1, aLow, v.at("RLow", 0), aT)
		v.where(1, aMin, aLow)
		v.lab(f + "_next")
		v.p("ADDQ $4, R9")
		v.p("DECQ R10")
		v.p("JNZ %s_try", f)
		v.affineClose()
	})
}

// affineOpen sets the extent and sums of the blocks: aLow, and aX to the extent, 1 in lanes that have none.
func (v *lanes) affineOpen(f string) {
	const high, sumW, sumX = aR, aQ, aQQ
	v.load(v.at("X", 0), aLow)
	v.mov(aLow, high)
	v.load(v.at("W", 0), sumW)
	v.mul(sumW, aLow, sumX)
	v.each(f+"_x", 1, 1, func(x, w, _ mem) {
		v.load(x, aX)
		v.load(w, aT)
		v.less(aX, aLow, aLow)
		v.more(aX, high, high)
		v.add(aT, sumW, sumW)
		v.mul(aX, aT, aT)
		v.add(aT, sumX, sumX)
	})
	v.store(sumW, v.at("SumW", 0))
	v.store(sumX, v.at("SumX", 0))
	v.store(aLow, v.at("Lowest", 0))
	v.zero(aT)
	v.less(aT, aLow, aLow)
	v.store(high, v.at("High", 0))
	v.compare(high, isNotEqual, aLow, 3)
	v.storeMask(3, v.at("Best", 0), aT)
	v.sub(high, aLow, aT)
	v.load(row("lanec", c1), aX)
	v.where(3, aT, aX)
	v.none(4)
	v.broadcast("Highest", aHighest)
}

// affineCheck adds to mask 4 the lanes where a code of step 1/aR from aLow could be out of range; aX is the extent.
func (v *lanes) affineCheck() {
	v.mul(aX, aR, aT)
	v.compare(aT, isNotLess, row("lanec", cInRange), 1)
	v.either(1, 4, 4)
	v.load(v.at("Lowest", 0), aT)
	v.sub(aT, aLow, aT)
	v.mul(aR, aT, aT)
	v.magnitude(aT, aT)
	v.compare(aT, isNotLess, row("lanec", cInRange), 1)
	v.either(1, 4, 4)
}

// affineSums makes the codes at Q of step 1/aR from aLow, and with sums aQ, aQQ and aXQ of them.
func (v *lanes) affineSums(label string, sums bool) {
	for _, r := range []int{aQ, aQQ, aXQ} {
		v.zero(r)
	}
	v.each(label, 8, 0, func(x, w, q mem) {
		v.load(x, aX)
		v.sub(aX, aLow, aT)
		v.mul(aR, aT, aT)
		v.o("VPMAXSD", row("lanec", cZero), aT, aT) // as words floats order alike from 0 on; more units do that
		v.o("VPMINSD", aHighest, aT, aT)
		v.round(aT, aT)
		v.store(aT, q)
		if !sums {
			return
		}
		v.mul(w, aT, aU)
		v.add(aU, aQ, aQ)
		v.mul(aU, aT, aT)
		v.add(aT, aQQ, aQQ)
		v.mul(aU, aX, aU)
		v.add(aU, aXQ, aXQ)
	})
}

// affineError sets aError to the error of aScale*Q + aMin.
func (v *lanes) affineError(label string, absolute bool) {
	v.zero(aError)
	v.each(label, 8, 0, func(x, w, q mem) {
		v.mul(q, aScale, aT)
		v.add(aMin, aT, aT)
		v.sub(aT, x, aT)
		if absolute {
			v.magnitude(aT, aT)
		} else {
			v.mul(aT, aT, aT)
		}
		v.mul(w, aT, aT)
		v.add(aT, aError, aError)
	})
}

// affineFit sets aScale and aMin by the weighted regression, and mask 1 where it has a solution.
func (v *lanes) affineFit(label string) {
	const det, sumW, sumX = aError, aX, aU
	v.load(v.at("SumW", 0), sumW)
	v.load(v.at("SumX", 0), sumX)
	v.mul(sumW, aQQ, det)
	v.mul(aQ, aQ, aT)
	v.sub(det, aT, det)
	v.compare(det, isGreater, row("lanec", cZero), 1)
	v.mul(sumW, aXQ, aScale)
	v.mul(sumX, aQ, aT)
	v.sub(aScale, aT, aScale)
	v.div(aScale, det, aScale)
	v.mul(aQQ, sumX, aMin)
	v.mul(aQ, aXQ, aT)
	v.sub(aMin, aT, aMin)
	v.div(aMin, det, aMin)
	v.compare(aMin, isGreater, row("lanec", cZero), 2)
	v.jumpIfNone(2, label)
	v.div(aXQ, aQQ, aT)
	v.where(2, aT, aScale)
	v.zero(aT)
	v.where(2, aT, aMin)
	v.lab(label)
}

// affineClose stores Low, and zeros in the lanes that are constant.
func (v *lanes) affineClose() {
	v.store(aLow, v.at("Low", 0))
	for _, field := range []string{"Scale", "R"} {
		v.load(v.at(field, 0), aT)
		v.keep(3, aT, aT)
		v.store(aT, v.at(field, 0))
	}
	v.both(3, 4, 4)
	v.storeMask(4, v.at("Bad", 0), aT)
}
