package verdict

import (
	"fmt"
	"math"
	"strings"

	"ck/internal/attention"
	"ck/internal/humanize"
)

var attentionClaims = []Claim{
	{"attention-small", "70 to 90 % of attention weights are below 0.01", "circulated figure on sparse attention",
		"ckinspect attention MODEL -f TEXT",
		"whether reading some keys only could be enough", judgeSmall},
	{"early-exit", "half of the tokens are decided at 3/4 of depth", "circulated figure on early exit",
		"ckinspect attention MODEL -f TEXT",
		"whether walks could end early", judgeExit},
	{"sparse-attention", "80/90/95 % less attention costs 0.1/0.5/2 ppl", "circulated figure on sparse attention",
		"ckinspect attention MODEL -f TEXT --drop 80,90,95",
		"how many keys must be read", judgeDropped},
	{"activation-x-weight", "importance is activation × weight, not size", "Sun et al. 2023 (Wanda), arXiv 2306.11695",
		"ckinspect verdict MODEL -f TEXT",
		"what quantizers weigh errors by", judgePruned},
}

// longKeys is the number of keys of a row from which on its small weights say something: even weights are below 0.01
// from 101 keys on.
const longKeys = 256

// mostPruned is the divergence with the product, over that by size alone, up to which the product says better what counts.
const mostPruned = 0.9

func judgePruned(f *Figures) finding {
	p := f.Pruned
	switch {
	case p == nil && f.Unpruned != "":
		return open("%s", f.Unpruned)
	case p == nil:
		return f.unseen()
	case p.BySize <= 0:
		return open("half of the weights can go without a change")
	}
	x := p.ByProduct / p.BySize
	return told(x <= mostPruned, x, "%.2f of the loss", x).
		of("with half of each row's weights left out: a KL divergence of %.3g by size, %.3g by the product", p.BySize, p.ByProduct)
}

// unseen says why there is no figure of attention.
func (f *Figures) unseen() finding {
	if f.Unseen != "" {
		return open("%s", f.Unseen)
	}
	return open("no text was given with -f")
}

func judgeSmall(f *Figures) finding {
	if f.Attention == nil {
		return f.unseen()
	}
	sum, n := 0.0, 0.0
	for _, h := range f.Attention.Heads {
		sum, n = sum+h.Small*float64(h.Rows), n+float64(h.Rows)
	}
	if n == 0 {
		return open("no row was long enough")
	}
	x := sum / n
	v := told(x >= 0.7, x, "%.1f %%", 100*x).
		of("over rows of %d positions and more, of which at most 100 weights can reach 0.01%s", f.Attention.Least, shortRows(f.Attention))
	if f.Attention.Block < longKeys {
		return v.untold("the blocks have %d tokens; %d and more would tell", f.Attention.Block, longKeys)
	}
	return v
}

// shortRows tells of the rows that are long enough to be sparse, and so short that even weights are above 0.01.
func shortRows(r *attention.Report) string {
	for _, l := range r.Lengths {
		if l.From == 64 && l.Rows > 0 {
			return fmt.Sprintf("; %.1f %% over rows of %d to %d", 100*l.Small, l.From, l.To)
		}
	}
	return ""
}

func judgeExit(f *Figures) finding {
	if f.Attention == nil {
		return f.unseen()
	}
	list := f.Attention.Layers
	n := len(list)
	if n < 4 {
		return open("the model has %s; four and more have three quarters", humanize.Plural(n, "layer"))
	}
	before, behind := list[3*n/4-1], list[(3*n+3)/4-1] // the ends of layers next to three quarters
	v := told(behind.Decided >= 0.5, behind.Decided, "%.1f %%", 100*behind.Decided).of("decided behind layer %d of %d", behind.Layer+1, n)
	if before.Decided < 0.5 && behind.Decided >= 0.5 {
		return v.untold("three quarters lie within layer %d; before it %.1f %% are decided", behind.Layer+1, 100*before.Decided)
	}
	return v
}

// mostLoss is what the claim grants: share that is left out, loss of perplexity.
var mostLoss = []struct{ share, loss float64 }{{0.8, 0.1}, {0.9, 0.5}, {0.95, 2}}

func judgeDropped(f *Figures) finding {
	if len(f.Dropped) == 0 {
		return f.unseen()
	}
	var words []string
	holds, worst := true, math.Inf(-1)
	for _, m := range mostLoss {
		found := false
		for _, d := range f.Dropped {
			if math.Abs(d.Share-m.share) < 1e-9 {
				found = true
				loss := d.Perplexity - d.Base
				words = append(words, fmt.Sprintf("%+.2f", loss))
				holds = holds && loss <= m.loss
				worst = max(worst, loss/m.loss)
			}
		}
		if !found {
			return open("the perplexity without %.0f %% of the weights was not measured", 100*m.share)
		}
	}
	v := told(holds, worst, "%s", strings.Join(words, " ")).
		of("to a perplexity of %.2f; the value is the largest loss, for what the claim grants", f.Dropped[0].Base)
	if f.Attention != nil && f.Attention.Block < longKeys {
		return v.untold("the blocks have %d tokens; %d and more would tell", f.Attention.Block, longKeys)
	}
	return v
}
