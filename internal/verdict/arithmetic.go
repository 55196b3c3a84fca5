package verdict

var arithmeticClaims = []Claim{
	{"gaussian-residue", "a correlation of 0.3 saves 8 to 15 % of bits", "circulated figure; arithmetic: −½ log₂(1 − r²)",
		"ckinspect verdict MODEL",
		"what layers that are this alike could save", judgeGaussian},
	{"rank200-2bit", "rank 200 + 2 bits: 2.5 times less than Q4_K", "circulated figure; arithmetic on 4096 × 4096",
		"ckinspect verdict MODEL",
		"whether a factored part pays", judgeFactored},
}

func judgeGaussian(*Figures) finding {
	s := Saved(0.3) / 3.6
	return told(s >= 0.08, s, "%.1f %%", 100*s).of("of 3.6 bits, for a Gaussian")
}

// Factored is how many times smaller than Q4_K (4.5 bits a weight) a matrix of n × n is as a factorization of a rank
// in F16, 2 × n × rank × 16 bits, and a residue of so many bits a weight.
func Factored(n, rank int, residue float64) float64 {
	weights := float64(n) * float64(n)
	return 4.5 * weights / (2*float64(n)*float64(rank)*16 + residue*weights)
}

func judgeFactored(*Figures) finding {
	x, q2 := Factored(4096, 200, 2), Factored(4096, 200, 2.625)
	return told(x >= 2.5, x, "%.2f times", x).of("with a residue of 2 bits; in Q2_K, 2.63 bits, %.2f times", q2)
}
