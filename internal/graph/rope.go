package graph

// Rope is a table of rotary frequencies: pair i turns by position * InvFreq[i]; cos and sin are multiplied by Scale (yarn's
// attention factor). (Su et al. 2021, arXiv:2104.09864)
type Rope struct {
	InvFreq []float64
	Scale   float64

	// Long are the frequencies of sequences that become longer than Original positions, from their first position on; nil: there are no others.
	// (Ding et al. 2024, LongRoPE, arXiv:2402.13753)
	Long     []float64
	Original int
}

// IsLong reports whether a sequence that becomes n positions long has the frequencies Long.
func (r *Rope) IsLong(n int) bool { return r.Long != nil && n > r.Original }
