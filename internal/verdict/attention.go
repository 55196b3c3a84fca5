package verdict

import (
	"fmt"
	"math"
	"strings"
)

var attentionClaims = []Claim{
	{"attention-small", "70 to 90 % of the attention weights are below 0.01", "circulated figure on sparse attention",
		"ckinspect attention MODEL -f TEXT",
		"whether reading some keys only could be enough", judgeSmall},
	{"early-exit", "half of the tokens are decided at three quarters of the depth", "circulated figure on early exit",
		"ckinspect attention MODEL -f TEXT",
		"whether walks could end early", judgeExit},
	{"sparse-attention", "80, 90, 95 % of the attention weights can go for 0.1, 0.5, 2 of perplexity", "circulated figure on sparse attention",
		"ckinspect attention MODEL -f TEXT --drop 80,90,95",
		"how many keys must be read", judgeDropped},
}

// longKeys is the number of keys of a row from which on its small weights say something: even weights are below 0.01
// from 101 keys on.
const longKeys = 256

func judgeSmall(f *Figures) finding {
	if f.Attention == nil {
		return open("no text was given")
	}
	sum, n := 0.0, 0.0
	for _, h := range f.Attention.Heads {
		sum, n = sum+h.Small*float64(h.Rows), n+float64(h.Rows)
	}
	if n == 0 {
		return open("no row was long enough")
	}
	x := sum / n
	v := told(x >= 0.7, x, "%.1f %% over rows of %d positions and more; even weights have 100 %% from 101 keys on", 100*x, f.Attention.Least)
	if f.Attention.Block < longKeys {
		return v.untold("the blocks have %d tokens; %d and more would tell", f.Attention.Block, longKeys)
	}
	return v
}

func judgeExit(f *Figures) finding {
	if f.Attention == nil {
		return open("no text was given")
	}
	list := f.Attention.Layers
	if len(list) < 4 {
		return open("the model has %d layers; four and more have three quarters", len(list))
	}
	l := list[(3*len(list)+3)/4-1]
	return told(l.Decided >= 0.5, l.Decided, "%.1f %% decided behind layer %d of %d", 100*l.Decided, l.Layer+1, len(list))
}

// mostLoss is what the claim grants: share that is left out, loss of perplexity.
var mostLoss = []struct{ share, loss float64 }{{0.8, 0.1}, {0.9, 0.5}, {0.95, 2}}

func judgeDropped(f *Figures) finding {
	var words []string
	holds, worst := true, math.Inf(-1)
	for _, m := range mostLoss {
		found := false
		for _, d := range f.Dropped {
			if math.Abs(d.Share-m.share) < 1e-9 {
				found = true
				loss := d.Perplexity - d.Base
				words = append(words, fmt.Sprintf("%.0f %%: %+.2f", 100*m.share, loss))
				holds = holds && loss <= m.loss
				worst = max(worst, loss/m.loss)
			}
		}
		if !found {
			return open("the perplexity without %.0f %% of the weights was not measured", 100*m.share)
		}
	}
	v := told(holds, worst, "%s", strings.Join(words, ", "))
	if f.Attention != nil && f.Attention.Block < longKeys {
		return v.untold("the blocks have %d tokens; %d and more would tell", f.Attention.Block, longKeys)
	}
	return v
}
