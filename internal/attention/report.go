package attention

// Report is what was measured of a model on a text.
type Report struct {
	Blocks int `json:"blocks"`
	Block  int `json:"block_tokens"`
	Tokens int `json:"tokens"`
	Least  int `json:"least_positions"` // that a row of Heads and Ages ends, its own included
	Dims   int `json:"recall_dimensions"`

	Heads   []Head   `json:"heads"`
	Lengths []Length `json:"lengths"`
	Ages    []Age    `json:"ages"`
	Layers  []Layer  `json:"layers"`
	// Recall is the share of the RecallKeys largest weights that are found among as many keys chosen by the first
	// dimensions, over rows that see more; nil where no head has more dimensions than those.
	Recall *float64 `json:"recall,omitempty"`
}

// Weights are means over rows of a head or of all heads.
type Weights struct {
	Rows  int                `json:"rows"`
	Top   [len(Tops)]float64 `json:"top_mass"`    // mass of the 1, 4, 16, 64 largest weights
	Small float64            `json:"small_share"` // share of the weights below 0.01
	First float64            `json:"first_mass"`  // mass of the first position, the usual sink
}

// Head is a head of a layer, over the rows that end Least positions or more.
type Head struct {
	Layer int `json:"layer"`
	Head  int `json:"head"`
	Weights
	Recall *float64 `json:"recall,omitempty"`
}

// Length is all heads together, over the rows that see From to To keys.
type Length struct {
	From int `json:"from_keys"`
	To   int `json:"to_keys"`
	Weights
}

// Age is the mass of the keys that lie From to To positions back, over all heads and the rows that end Least positions
// or more.
type Age struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	Mass float64 `json:"mass"`
}

// Layer is what happens to hidden states in a layer, and what the model would say if it ended behind it.
type Layer struct {
	Layer   int     `json:"layer"`
	Cosine  float64 `json:"cosine"`        // of the hidden states before and behind
	Step    float64 `json:"relative_step"` // length of the change over that of the state before
	Agree   float64 `json:"top1_agreement"`
	Decided float64 `json:"decided"` // share of tokens whose best token is the model's own here and behind all later layers
	KLD     float64 `json:"kl_divergence"`
}

func (s *sums) mean() Weights {
	w := Weights{Rows: s.rows}
	if s.rows == 0 {
		return w
	}
	n := float64(s.rows)
	for i, x := range s.top {
		w.Top[i] = x / n
	}
	w.Small, w.First = s.small/n, s.first/n
	return w
}

// report sums up.
func (g *gatherer) report() *Report {
	r := &Report{Blocks: g.text.Blocks(), Block: g.text.Block, Tokens: len(g.text.IDs), Least: g.opt.Least, Dims: g.opt.Dims}
	var all [lengths]sums
	var age [ages]float64
	var recall float64
	rows, chosen := 0, 0
	for i, list := range g.heads {
		for j := range list {
			h := &list[j]
			for n := range h.by {
				all[n].add(&h.by[n])
			}
			head := Head{Layer: g.l.heads[i].layer, Head: j, Weights: h.long.mean()}
			if h.chosen > 0 {
				x := h.recall / float64(h.chosen)
				head.Recall = &x
			}
			r.Heads = append(r.Heads, head)
			recall, chosen = recall+h.recall, chosen+h.chosen
			rows += h.long.rows
			for n, x := range h.age {
				age[n] += x
			}
		}
	}
	if chosen > 0 {
		recall /= float64(chosen)
		r.Recall = &recall
	}
	for n := range all {
		if all[n].rows > 0 {
			r.Lengths = append(r.Lengths, Length{From: 1 << n, To: 1<<(n+1) - 1, Weights: all[n].mean()})
		}
	}
	for n, x := range age {
		from, to := 0, 0
		if n > 0 {
			from, to = 1<<(n-1), 1<<n-1
		}
		if from < g.text.Block && rows > 0 {
			r.Ages = append(r.Ages, Age{from, to, x / float64(rows)})
		}
	}
	for n, m := range g.motion {
		rows := float64(max(1, m.rows))
		x := &g.exits[n]
		r.Layers = append(r.Layers, Layer{Layer: n, Cosine: m.cos / rows, Step: m.step / rows, Agree: float64(x.agree) / rows,
			Decided: float64(x.decided) / rows, KLD: x.kld / rows})
	}
	return r
}
