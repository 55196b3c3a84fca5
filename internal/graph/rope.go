package graph

// Rope is a table of rotary frequencies: pair i turns by position * InvFreq[i]; cos and sin are multiplied by Scale (yarn's
// attention factor). (Su et al. 2021, arXiv:2104.09864)
type Rope struct {
	InvFreq []float64
	Scale   float64
}
