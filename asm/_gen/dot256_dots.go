package main

// dots256 is a way to make integer sums of products of weights and activations.
type dots256 struct {
	// extra is the number of registers that it needs beside sums, weights and two temporaries; inAcc tells whether the float
	// accumulators (superblocks: the sums over them) therefore lie in Acc.
	extra func(rows int) int
	inAcc func(rows int) bool
	sums  func(k *int256, j int) // leaves sum j of the turn in the registers of sums, or adds to them if weights are folded
}

// VPMADDUBSW adds two products to a word. How many such words can be added before they must be widened depends on the largest
// weight: 2*127 times that is at most what a word holds, 2^15-1, divided by 8, 4 or 2.
var (
	wordsOf8 = dots256{func(int) int { return 0 }, func(int) bool { return false }, (*int256).sumWords8}
	wordsOf4 = dots256{func(rows int) int { return 2 * rows }, func(rows int) bool { return rows > 1 }, (*int256).sumWords4}
	wordsOf2 = dots256{func(int) int { return 4 }, func(int) bool { return true }, (*int256).sumWords2}
	bySigns  = dots256{func(int) int { return 2 }, func(rows int) bool { return rows > 2 }, (*int256).sumSigned}
	byVNNI   = dots256{func(int) int { return 0 }, func(int) bool { return false }, (*int256).sumVNNI}
)

// dots is the way for weights b.
func (b *weights256) dots(vnni bool) dots256 {
	switch {
	case vnni:
		return byVNNI
	case b.signed:
		return bySigns
	case b.most <= (1<<15-1)/8/254:
		return wordsOf8
	case b.most <= (1<<15-1)/4/254:
		return wordsOf4
	case b.most <= (1<<15-1)/2/254:
		return wordsOf2
	}
	panic("no way to sum " + b.name)
}

// activations broadcasts four activations of vector i of sum j, row r, to register x.
func (k *int256) activations(r, j, i, x int) {
	k.e.p("VPBROADCASTD %s, Y%d", row256("SI", r, 4*(k.b.vecs()*j+i)), x)
}

// weights loads vector i of sum j to w0, w1.
func (k *int256) weights(j, i int) {
	k.b.load(k, j, i, 0, w0, tmp)
	k.b.load(k, j, i, 1, w1, tmp)
}

// madd sets d to the word sums of x*w, addMadd adds them to s by way of t; widen sets d to the sums of pairs of words.
func (k *int256) madd(x, w, d int) { k.e.p("VPMADDUBSW Y%d, Y%d, Y%d", x, w, d) }
func (k *int256) widen(s, d int)   { k.e.p("VPMADDWD %s, Y%d, Y%d", k.c["c0001"], s, d) }
func (k *int256) addMadd(first bool, x, w, s, t int) {
	if first {
		k.madd(x, w, s)
		return
	}
	k.madd(x, w, t)
	k.e.p("VPADDW Y%d, Y%d, Y%d", t, s, s)
}

// addWidened adds the pairs of words t to s, or sets it.
func (k *int256) addWidened(first bool, t, s int) {
	if first {
		k.widen(t, s)
		return
	}
	k.widen(t, t)
	k.e.p("VPADDD Y%d, Y%d, Y%d", t, s, s)
}

// sumWords8 adds the words of all vectors of a sum. Q2_K's are not widened.
func (k *int256) sumWords8(j int) {
	for i := range k.b.vecs() {
		end := k.macro("STEP")
		k.fetchStep(j*k.b.vecs()+i, k.turn()*k.b.vecs())
		k.weights(j, i)
		for r := range k.rows {
			k.activations(r, j, i, tmp)
			k.addMadd(i == 0, tmp, w0, k.sum(r, 0), t15)
			k.addMadd(i == 0, tmp, w1, k.sum(r, 1), tmp)
		}
		end()
	}
	if k.b.scaling != perSubNibbles {
		k.each("WIDEN", func(r, h int) { k.widen(k.sum(r, h), k.sum(r, h)) })
	}
	k.addOffsets()
}

// sumWords4 adds the words of four vectors; the second four are added to the first widened.
func (k *int256) sumWords4(j int) {
	first := k.extra
	for i := range k.b.vecs() {
		end := k.macro("STEP")
		k.fetchStep(j*k.b.vecs()+i, k.turn()*k.b.vecs())
		k.weights(j, i)
		for r := range k.rows {
			k.activations(r, j, i, tmp)
			k.addMadd(i%4 == 0, tmp, w0, k.sum(r, 0), t15)
			k.addMadd(i%4 == 0, tmp, w1, k.sum(r, 1), tmp)
			if i == 3 {
				k.widen(k.sum(r, 0), first[2*r])
				k.widen(k.sum(r, 1), first[2*r+1])
			}
		}
		end()
	}
	k.each("WIDEN", func(r, h int) {
		s := k.sum(r, h)
		k.widen(s, s)
		k.e.p("VPADDD Y%d, Y%d, Y%d", first[2*r+h], s, s)
	})
	k.addOffsets()
}

// sumWords2 adds the words of two vectors.
func (k *int256) sumWords2(j int) {
	v0, v1, t0, t1 := k.extra[0], k.extra[1], k.extra[2], k.extra[3]
	for i := 0; i < k.b.vecs(); i += 2 {
		end := k.macro("STEP")
		k.fetchStep(j*k.b.vecs()+i, k.turn()*k.b.vecs())
		k.weights(j, i)
		k.fetchStep(j*k.b.vecs()+i+1, k.turn()*k.b.vecs())
		k.b.load(k, j, i+1, 0, v0, tmp)
		k.b.load(k, j, i+1, 1, v1, tmp)
		for r := range k.rows {
			k.activations(r, j, i, tmp)
			k.activations(r, j, i+1, t15)
			k.madd(tmp, w0, t0)
			k.madd(t15, v0, t1)
			k.madd(tmp, w1, tmp)
			k.madd(t15, v1, t15)
			k.e.p("VPADDW Y%d, Y%d, Y%d", t1, t0, t0)
			k.e.p("VPADDW Y%d, Y%d, Y%d", t15, tmp, tmp)
			for h, t := range []int{t0, tmp} {
				k.addWidened(i == 0 && !k.b.folded, t, k.sum(r, h))
			}
		}
		end()
	}
	k.addOffsets()
}

// sumSigned multiplies |w| and x with the sign of w: 2*127*127 < 2^15, but no words can be added.
func (k *int256) sumSigned(j int) {
	abs := k.extra
	for i := range k.b.vecs() {
		end := k.macro("STEP")
		k.fetchStep(j*k.b.vecs()+i, k.turn()*k.b.vecs())
		k.weights(j, i)
		k.e.p("VPABSB Y%d, Y%d", w0, abs[0])
		k.e.p("VPABSB Y%d, Y%d", w1, abs[1])
		for r := range k.rows {
			k.activations(r, j, i, tmp)
			k.e.p("VPSIGNB Y%d, Y%d, Y%d", w0, tmp, t15)
			k.e.p("VPSIGNB Y%d, Y%d, Y%d", w1, tmp, tmp)
			for h, t := range []int{t15, tmp} {
				k.madd(t, abs[h], t)
				k.addWidened(i == 0, t, k.sum(r, h))
			}
		}
		end()
	}
}

// addOffsets adds the offsets of unsigned weights to the sums.
func (k *int256) addOffsets() {
	if !k.hasOffset() {
		return
	}
	defer k.macro("OFFSETS")()
	for r := range k.rows {
		k.e.p("VPBROADCASTD %d(R9), Y%d", 4*r, tmp)
		for h := range 2 {
			k.e.p("VPADDD Y%d, Y%d, Y%d", tmp, k.sum(r, h), k.sum(r, h))
		}
	}
}

// ways is how many sets of sums VPDPBUSD adds to in turn, lest its latency shows with few rows; way is a register of one of them. Sums of
// four vectors do better with one: what follows does not wait for them (one row, packed: Q6_K 1.15 times as fast, Code4 and Q2_K 1.2).
func (k *int256) ways() int {
	if k.b.vecs() == 4 && !k.b.folded {
		return 1
	}
	return min(1+len(k.free)/(2*k.rows), 4)
}

func (k *int256) way(way, r, h int) int {
	if way == 0 {
		return k.sum(r, h)
	}
	return k.free[2*k.rows*(way-1)+2*r+h]
}

// sumVNNI adds four products to each 32-bit sum at once.
func (k *int256) sumVNNI(j int) {
	if !k.b.folded {
		k.vnniZero()
	}
	for i := range k.b.vecs() {
		end := k.macro("STEP")
		k.fetchStep(j*k.b.vecs()+i, k.turn()*k.b.vecs())
		k.weights(j, i)
		for r := range k.rows {
			k.activations(r, j, i, tmp)
			k.e.vnniVex(tmp, w0, k.way(i%k.ways(), r, 0))
			k.e.vnniVex(tmp, w1, k.way(i%k.ways(), r, 1))
		}
		end()
	}
	if !k.b.folded {
		k.vnniFold()
	}
}

// vnniZero starts all ways at zero, the first one at the offset if there is one.
func (k *int256) vnniZero() {
	e := k.e
	for way := range k.ways() {
		k.each("OFFSETS", func(r, h int) {
			s := k.way(way, r, h)
			if way > 0 || !k.hasOffset() {
				e.p("VPXOR Y%d, Y%d, Y%d", s, s, s)
				return
			}
			if h == 1 && k.b.bias == 128 {
				e.p("VMOVDQA Y%d, Y%d", k.way(0, r, 0), s)
				return
			}
			e.p("VPBROADCASTD %d(R9), Y%d", 4*r, s)
			if k.b.bias == 128 {
				e.p("VPSLLD $2, Y%d, Y%d", s, s) // -32 times the sum of x becomes -128
			}
		})
	}
}

// vnniFold adds the ways up.
func (k *int256) vnniFold() {
	for n := k.ways(); n > 1; n = (n + 1) / 2 {
		for way := (n + 1) / 2; way < n; way++ {
			k.each("WAYS", func(r, h int) {
				s := k.way(way-(n+1)/2, r, h)
				k.e.p("VPADDD Y%d, Y%d, Y%d", k.way(way, r, h), s, s)
			})
		}
	}
}
