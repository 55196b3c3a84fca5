package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/quant"
)

// Result is one test of one model. The names of the first half are those of llama-bench.
type Result struct {
	Schema        string  `json:"schema"`
	BuildCommit   string  `json:"build_commit"`
	CPUInfo       string  `json:"cpu_info"`
	Backends      string  `json:"backends"`
	ModelFilename string  `json:"model_filename"`
	ModelType     string  `json:"model_type"`
	ModelSize     int64   `json:"model_size"`
	ModelParams   int64   `json:"model_n_params"`
	UBatch        int     `json:"n_ubatch"`
	Threads       int     `json:"n_threads"`
	TypeK         string  `json:"type_k"`
	TypeV         string  `json:"type_v"`
	Prompt        int     `json:"n_prompt"`
	Gen           int     `json:"n_gen"`
	Depth         int     `json:"n_depth"`
	TestTime      string  `json:"test_time"`
	AvgNs         float64 `json:"avg_ns"`
	StddevNs      float64 `json:"stddev_ns"`
	AvgTS         float64 `json:"avg_ts"`
	StddevTS      float64 `json:"stddev_ts"`

	Test      string          `json:"test"`
	Rows      int             `json:"rows"`
	ModelHash string          `json:"model_hash"` // see measure.ModelHash
	Tier      string          `json:"tier"`
	Act       string          `json:"act"`
	Packed    bool            `json:"packed"`
	Ablate    string          `json:"ablate"` // what is left out; "" as usual
	TS        measure.Summary `json:"tokens_per_s"`
	Worth     *Ratio          `json:"worth"`         // usual rate over this one; null as usual
	GBps      float64         `json:"gb_per_s"`      // weights and cache, at the median
	ReadGBps  float64         `json:"read_roof_gbs"` // 0: not measured
	ReadPct   float64         `json:"pct_read_roof"`
	GOPs      float64         `json:"gop_per_s"` // of matmuls, at the median
	PeakGOPs  float64         `json:"peak_gops"`
	PeakPct   float64         `json:"pct_peak"`
	PeakKind  string          `json:"peak_kind"`
	Counts    *measure.Counts `json:"counters_per_token"` // null: see notes
	Samples   []Sample        `json:"samples"`
	NUMA      string          `json:"numa,omitempty"` // mode, where it was asked for
	Placement []Placed        `json:"placement,omitempty"`
	Steps     []StepRow       `json:"steps,omitempty"`
	Warnings  []string        `json:"warnings"`
	Notes     []string        `json:"notes"`
	Host      *measure.Host   `json:"host,omitempty"`

	said int // of Notes: those that hold for the engine, which are said once
}

// Placed is where memory of one kind lies after a test, on machines with several memory nodes.
type Placed struct {
	What    string        `json:"what"`     // panels, KV cache, buffers
	Bytes   map[int]int64 `json:"bytes"`    // by node
	HomePct float64       `json:"pct_home"` // of what one home reads, the share on its own nodes; 0: nothing is
	By      string        `json:"by"`       // move_pages, numa_maps, or why it is not verified
}

// placement is where the memory of an engine lies; nil on machines with one node.
func placement(e *engine.Engine) (list []Placed) {
	if len(e.Machine.Nodes) < 2 {
		return nil
	}
	for _, p := range e.Placement() {
		x := Placed{What: p.What, Bytes: map[int]int64{}, By: p.By}
		for node, n := range p.OnNode {
			x.Bytes[node] = int64(n) * int64(os.Getpagesize())
		}
		if p.Homed > 0 {
			x.HomePct = 100 * float64(p.Home) / float64(p.Homed)
		}
		if p.Err != nil {
			x.By = "not verified: " + p.Err.Error()
		}
		list = append(list, x)
	}
	return list
}

// Name tells a test without something, or with its memory placed otherwise, from the usual one.
func (r *Result) Name() string {
	if r.Ablate != "" {
		return r.Placed() + " without " + r.Ablate
	}
	return r.Placed()
}

// Placed is the test with the mode of its memory, where one was asked for.
func (r *Result) Placed() string {
	if r.NUMA == "" {
		return r.Test
	}
	return r.Test + ", " + r.NUMA
}

// Ratio is how many times as fast a test is as usual, as without something: the median of the ratios of each two repetitions that followed
// each other, with its interval.
type Ratio struct {
	measure.Summary
	Alternated bool `json:"alternated"` // in turn with the usual engine; else one ratio, of the medians
}

// Compare fills in what leaving something out is worth: r against the same test as usual, which was measured in turn with it.
func Compare(r, usual *Result) {
	if r.Ablate == "" {
		return
	}
	var v []float64
	for i := range r.Samples {
		r.Samples[i].Worth = usual.Samples[i].TS / r.Samples[i].TS
		v = append(v, r.Samples[i].Worth)
	}
	r.Worth = &Ratio{measure.Summarize(v), true}
}

// CompareAlone is Compare where there was no room to alternate.
func CompareAlone(r, usual *Result) {
	r.Worth = &Ratio{measure.Summarize([]float64{usual.TS.Median / r.TS.Median}), false}
	r.Warnings = append(r.Warnings, "was not measured in turn with the usual engine: its worth is the ratio of the medians, and has no interval")
}

// Schema names the form of results in JSON.
const Schema = "ck.bench.run/1"

// Sample is one repetition.
type Sample struct {
	Ns       int64         `json:"ns"`
	TS       float64       `json:"tokens_per_s"`
	ReadGBps float64       `json:"read_roof_gbs"` // the better of before and after; 0: not measured
	PeakGOPs float64       `json:"peak_gops"`
	Share    float64       `json:"share"`           // least possible time under these roofs, over the time that it took; 0: not measured
	Worth    float64       `json:"worth,omitempty"` // usual rate beside this one over this one
	Noise    measure.Noise `json:"noise"`
}

// StepRow is a line of the steps' table.
type StepRow struct {
	Phase   string  `json:"phase"` // "prefill of 512 rows", "decode of 1 row"
	Name    string  `json:"step"`
	Items   int     `json:"items"`
	Us      float64 `json:"us_per_walk"`
	Share   float64 `json:"share"`
	GBps    float64 `json:"gb_per_s"`
	ReadPct float64 `json:"pct_read_roof"`
	GOPs    float64 `json:"gop_per_s"`
	PeakPct float64 `json:"pct_peak"`
	Kind    string  `json:"peak_kind"`
	Ops     float64 `json:"ops"`
	Bytes   float64 `json:"bytes"`
}

// NewNotes are those of r's notes that are of this test alone: the others hold for all tests of the engine.
func (r *Result) NewNotes() []string { return r.Notes[r.said:] }

// Facts is what a result says about the model.
type Facts struct {
	File   string // its name, without folders
	Type   string // architecture, parameters and type of the weights: "llama 1.2B Q4_K_M"
	Hash   string // see measure.ModelHash
	Size   int64  // bytes of the tensors
	Params int64
}

// FactsOf looks at a model. Errors of its metadata are *generate.InputError.
func FactsOf(m *generate.Model) (Facts, error) {
	f := Facts{File: "built-in"}
	if m.Path != "" {
		f.File = filepath.Base(m.Path)
	}
	bytes := map[quant.Type]int64{}
	for _, t := range m.Weights.Tensors {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		f.Params += n
		f.Size += t.Bytes()
		bytes[t.Type] += t.Bytes()
	}
	arch, _, err := m.Weights.KV.String("general.architecture")
	if err != nil {
		return f, &generate.InputError{Err: err}
	}
	main, most := quant.F32, int64(-1)
	for t, n := range bytes {
		if n > most || n == most && t < main {
			main, most = t, n
		}
	}
	kind := main.String()
	n, _, err := m.Weights.KV.Int("general.file_type")
	if err != nil {
		return f, &generate.InputError{Err: err}
	}
	if n > 0 {
		if r, ok := quant.RecipeOfFile(int(n)); ok {
			kind = r.Name
		}
	}
	f.Type = fmt.Sprintf("%s %s %s", arch, shortParams(f.Params), kind)
	f.Hash, err = measure.ModelHash(m.Weights.Files())
	return f, err
}

// shortParams is 1.2B, 596M, 260K.
func shortParams(n int64) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}} {
		if x := float64(n) / u.of; x >= 0.9995 {
			if x < 9.95 {
				return fmt.Sprintf("%.1f%s", x, u.name)
			}
			return fmt.Sprintf("%.0f%s", x, u.name)
		}
	}
	return fmt.Sprint(n)
}

// newResult fills in what is known before the test runs.
func (b *Runner) newResult(t Test) *Result {
	r := &Result{Schema: Schema, BuildCommit: b.set.Commit, CPUInfo: b.host.CPU, Backends: "CPU", ModelFilename: b.facts.File, ModelType: b.facts.Type,
		ModelSize: b.facts.Size, ModelParams: b.facts.Params, UBatch: b.set.UBatch, Threads: b.threads, TypeK: b.set.KV, TypeV: b.set.KV, Prompt: t.Prompt,
		Gen: t.Gen, Depth: t.Depth, TestTime: time.Now().UTC().Format(time.RFC3339), Test: t.String(), Rows: t.Rows, ModelHash: b.facts.Hash,
		Tier: b.e.Tier.String(), Act: b.set.Act, Packed: b.e.Packed(), Ablate: b.without.String(), Samples: []Sample{}, Warnings: []string{}, Notes: []string{}, Host: &b.host}
	return r
}

// finish computes what follows from the samples.
func (b *Runner) finish(r *Result, w testWork) {
	var ts, ns []float64
	for _, s := range r.Samples {
		ts, ns = append(ts, s.TS), append(ns, float64(s.Ns))
	}
	r.TS = measure.Summarize(ts)
	r.AvgTS, r.StddevTS = r.TS.Mean, r.TS.Stddev
	n := measure.Summarize(ns)
	r.AvgNs, r.StddevNs = n.Mean, n.Stddev
	seconds := n.Median / 1e9
	r.GBps, r.GOPs, r.PeakKind = w.bytes/seconds/1e9, w.ops/seconds/1e9, w.kind
	if b.roofs != nil {
		r.ReadGBps, r.PeakGOPs = b.roofs.BestRead()/1e9, b.roofs.BestPeak(w.kind)/1e9
		r.ReadPct, r.PeakPct = 100*r.GBps/r.ReadGBps, 100*r.GOPs/r.PeakGOPs
	}
	for _, i := range r.TS.OutlierIndex {
		s := r.Samples[i]
		text := fmt.Sprintf("repetition %d is off the median by %+.1f %%", i+1, 100*(s.TS/r.TS.Median-1))
		if why := s.Noise.Reasons(); len(why) > 0 {
			text += ": " + strings.Join(why, ", ")
		} else {
			text += "; nothing was seen that explains it"
		}
		r.Warnings = append(r.Warnings, text)
	}
	var all []measure.Noise
	for _, s := range r.Samples {
		all = append(all, s.Noise)
	}
	noise := measure.Together(all)
	if why := noise.Reasons(); len(why) > 0 {
		r.Warnings = append(r.Warnings, "all repetitions together: "+strings.Join(why, ", "))
	}
}
