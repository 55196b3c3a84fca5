package verdict

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Others are results of other programs.
type Others struct {
	Bench []benchRow
	Plans map[string][]planRow // of ckquant, by strategy
	Topo  []topoPlan

	results int // of ckbench run
}

// benchRow is what counts of a test of ckbench run.
type benchRow struct {
	Model    string `json:"model_filename"`
	from     int    // number of the result that it is of: rates of other times are no base for ratios
	Test     string `json:"test"`
	Threads  int    `json:"n_threads"`
	Rows     int    `json:"rows"`
	Gen      int    `json:"n_gen"`
	Ablate   string `json:"ablate"`
	PerToken struct {
		Median float64 `json:"median"`
	} `json:"tokens_per_s"`
	Worth *struct {
		Median float64 `json:"median"`
	} `json:"worth"`
}

// planRow is a recipe of ckquant plan beside the best choice of its size.
type planRow struct {
	Recipe    string  `json:"recipe"`
	Bytes     int64   `json:"bytes"`
	KLD       float64 `json:"kl_divergence"`
	BestBytes int64   `json:"best_bytes"`
	BestKLD   float64 `json:"best_kl_divergence"`
}

// topoPlan is what cktopo plan expects of a model on a machine.
type topoPlan struct {
	Model struct {
		Name   string  `json:"name"`
		Type   string  `json:"type"`
		Params float64 `json:"params"`
	} `json:"model"`
	Machine struct {
		Name  string `json:"name"`
		Cores int    `json:"cores"`
	} `json:"machine"`
	Decode *struct {
		Expected float64 `json:"expected"`
	} `json:"decode"`
}

// mostJSON bounds a result of another program, in bytes.
const mostJSON = 64 << 20

// Read takes the JSON of another program: ckbench run, ckquant plan or cktopo plan. name is the file's, for errors.
func (o *Others) Read(name string, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, mostJSON+1))
	if err != nil {
		return err
	}
	if len(b) > mostJSON {
		return fmt.Errorf("%s: has more than %d MiB; is it a result?", name, mostJSON>>20)
	}
	var doc struct {
		Schema   string     `json:"schema"`
		Results  []benchRow `json:"results"`
		Recipes  []planRow  `json:"recipes"`
		Strategy string     `json:"strategy"`
		Plans    []topoPlan `json:"plans"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("%s: is no result in JSON: %w", name, err)
	}
	switch {
	case strings.HasPrefix(doc.Schema, "ck.bench.run/"):
		o.results++
		for _, r := range doc.Results {
			r.from = o.results
			o.Bench = append(o.Bench, r)
		}
	case strings.HasPrefix(doc.Schema, "ck.quant.plan/"):
		if doc.Strategy == "" {
			doc.Strategy = "divergence"
		}
		if o.Plans == nil {
			o.Plans = map[string][]planRow{}
		}
		o.Plans[doc.Strategy] = append(o.Plans[doc.Strategy], doc.Recipes...)
	case strings.HasPrefix(doc.Schema, "ck.topo.plan/"):
		o.Topo = append(o.Topo, doc.Plans...)
	default:
		return fmt.Errorf("%s: schema %q; results of ckbench run, ckquant plan and cktopo plan are read (--json)", name, doc.Schema)
	}
	return nil
}

var otherClaims = []Claim{
	{"two-rows", "two rows per weight nearly double generation", "circulated figure on batches",
		"ckbench run -m MODEL -p 0 -n 64 --rows 1,2 --json > bench.json",
		"what speculation and batches can win", judgeRows},
	{"prefetch-20-40", "prefetching is worth 20 to 40 %", "circulated figure",
		"ckbench run -m MODEL -p 0 -n 64 --ablate prefetch --json > ablate.json",
		"whether kernels should prefetch", judgePrefetch},
	{"entropy-bits", "bits in proportion to entropy save 10 to 15 %", "circulated figure on mixed types",
		"ckquant plan -m MODEL -f TEXT --strategy entropy --json > plan.json",
		"how types are chosen", judgeBits},
	{"8b-two-cores", "an 8B generates 10 to 15 tokens/s on two cores", "circulated figure",
		"cktopo plan llama-3.1-8b --type Q4_K --measure --json > topo.json",
		"what small servers can do", judgeSpeed},
}

const fromHint = "was not given with --from"

func judgeRows(f *Figures) finding {
	var ratios []float64
	for _, one := range f.Others.Bench {
		if one.Rows != 1 || one.Gen == 0 || one.Ablate != "" {
			continue
		}
		for _, two := range f.Others.Bench {
			if two.from == one.from && two.Rows == 2 && two.Gen == one.Gen && two.Model == one.Model && two.Threads == one.Threads && two.Ablate == "" && one.PerToken.Median > 0 {
				ratios = append(ratios, two.PerToken.Median/one.PerToken.Median)
			}
		}
	}
	if len(ratios) == 0 {
		return open("a result of ckbench run with --rows 1,2 %s", fromHint)
	}
	x := median(ratios)
	return told(x >= 1.7, x, "%.2f times", x).of("the tokens/s of one row")
}

func judgePrefetch(f *Figures) finding {
	var worth []float64
	for _, r := range f.Others.Bench {
		if r.Ablate == "prefetch" && r.Worth != nil && r.Gen > 0 {
			worth = append(worth, r.Worth.Median-1)
		}
	}
	if len(worth) == 0 {
		return open("a result of ckbench run --ablate prefetch with generated tokens %s", fromHint)
	}
	x := median(worth)
	return told(x >= 0.2, x, "%+.1f %%", 100*x)
}

// judgeBits compares choices with bits by entropy with the recipes: the bytes that a recipe would take for the same
// divergence, between its neighbours by the logarithm of the divergence.
func judgeBits(f *Figures) finding {
	rows := slices.Clone(f.Others.Plans["entropy"])
	if len(rows) < 2 {
		return open("a result of ckquant plan --strategy entropy %s", fromHint)
	}
	slices.SortFunc(rows, func(a, b planRow) int { return int(a.Bytes - b.Bytes) })
	var saved []float64
	for _, r := range rows {
		if b, ok := bytesFor(rows, r.BestKLD); ok {
			saved = append(saved, 1-float64(r.BestBytes)/b)
		}
	}
	if len(saved) == 0 {
		return open("no recipe of the plan reaches the divergences of its choices")
	}
	x := median(saved)
	return told(x >= 0.1, x, "%.1f %%", 100*x).of("less than recipes of the same divergence (median of %d sizes)", len(saved))
}

// bytesFor is the bytes that recipes, by size, take for a divergence; false outside of them.
func bytesFor(rows []planRow, kld float64) (float64, bool) {
	for i := 1; i < len(rows); i++ {
		a, b := rows[i-1], rows[i]
		if a.KLD >= kld && kld >= b.KLD && a.KLD > b.KLD && b.KLD > 0 {
			t := math.Log(a.KLD/kld) / math.Log(a.KLD/b.KLD)
			return float64(a.Bytes) + t*float64(b.Bytes-a.Bytes), true
		}
	}
	return 0, false
}

func judgeSpeed(f *Figures) finding {
	for _, p := range f.Others.Topo {
		if p.Decode == nil || p.Model.Params < 7e9 || p.Model.Params > 9e9 || p.Machine.Cores > 2 {
			continue
		}
		x := p.Decode.Expected
		return told(x >= 10, x, "%.1f tokens/s", x).of("expected for %s %s on %s", p.Model.Name, p.Model.Type, p.Machine.Name)
	}
	return open("a result of cktopo plan for a model of 8 billion weights on two cores %s", fromHint)
}
