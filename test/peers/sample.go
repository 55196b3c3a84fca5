package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// row is what was measured for a job.
type row struct {
	job
	Setups map[string]setup    `json:"setups"` // by engine
	Runs   map[string][]sample `json:"runs"`   // by engine, as long as there are repetitions
	Panels float64             `json:"panel_share"`
	Peak   float64             `json:"pct_peak"`
	Bytes  int64               `json:"model_bytes"`
}

// sample is one repetition of one engine.
type sample struct {
	TS       float64 `json:"tokens_per_s"`
	RoofGBps float64 `json:"roof_gbs"`   // read roof: the mean of before and behind
	Before   float64 `json:"roof_begin"` // GB/s
	Behind   float64 `json:"roof_end"`
	Others   float64 `json:"other_cpus"` // CPUs' worth of work by other processes
}

// othersMax is the work of other processes beside a repetition that counts, in CPUs.
const othersMax = 0.05

// tries bounds how often a disturbed repetition is measured again.
const tries = 3

// probe samples the read roof of the machine with as many threads as the engines have.
type probe struct {
	team  *team.Team
	roofs *measure.Roofs
}

func newProbe(threads int) (*probe, error) {
	m, err := topo.Read("")
	if err != nil {
		return nil, err
	}
	t, err := team.New(m.CPUsFor(threads), team.Options{Pin: true, Quota: threads})
	if err != nil {
		return nil, err
	}
	r, err := measure.NewRoofs(t)
	if err != nil {
		t.Close()
		return nil, err
	}
	return &probe{t, r}, nil
}

// now is the read roof of this moment in GB/s.
func (p *probe) now() (float64, error) {
	bw, err := p.roofs.ReadNow()
	return bw / 1e9, err
}

func (p *probe) close() {
	p.roofs.Close()
	p.team.Close()
}

// meter measures rows.
type meter struct {
	engines []engine
	journal *journal
	probe   *probe
	borders []float64 // GB/s between states of the memory
}

// row measures a job: for each peer the fastest setup, then all engines in turn.
func (m *meter) row(j job) (row, error) {
	r := row{job: j, Setups: map[string]setup{}, Runs: map[string][]sample{}}
	st, err := os.Stat(j.Path)
	if err != nil {
		return r, err
	}
	r.Bytes = st.Size()
	for _, e := range m.engines {
		if e.name == ckName {
			r.Setups[ckName] = setup{}
			continue
		}
		if r.Setups[e.name], err = m.fastest(e, j); err != nil {
			return r, err
		}
	}
	for rep := 0; rep < *reps || rep < 2**reps && !r.settled(*reps, statesOf(j, m.borders)); rep++ {
		if err := m.round(&r, rep); err != nil {
			return r, err
		}
	}
	return r, nil
}

// statesOf are the borders between states that count for a job: prompts of hundreds of tokens do not wait for memory.
func statesOf(j job, borders []float64) []float64 {
	if j.prompt() {
		return nil
	}
	return borders
}

// settled reports whether all engines have n samples in one state of the memory.
func (r row) settled(n int, borders []float64) bool {
	for state := range len(borders) + 1 {
		enough := true
		for _, runs := range r.Runs {
			enough = enough && len(inState(runs, state, borders)) >= n
		}
		if enough {
			return true
		}
	}
	return false
}

// inState are the samples that began and ended in a state of the memory.
func inState(runs []sample, state int, borders []float64) (out []sample) {
	for _, s := range runs {
		if stateOf(s.Before, borders) == state && stateOf(s.Behind, borders) == state {
			out = append(out, s)
		}
	}
	return out
}

// round takes one repetition of each engine, beginning with another one each time.
func (m *meter) round(r *row, rep int) error {
	for i := range m.engines {
		e := m.engines[(i+rep)%len(m.engines)]
		s, out, err := m.sample(e, r.Setups[e.name], r.job)
		if err != nil {
			return err
		}
		if r.Runs[e.name] = append(r.Runs[e.name], s); e.name == ckName {
			r.Panels, r.Peak = out.panels, out.peak
		}
	}
	return nil
}

// stateOf is the number of the state of a roof in GB/s: how many borders it exceeds.
func stateOf(roof float64, borders []float64) int {
	n, _ := slices.BinarySearch(borders, roof)
	return n
}

// fastest finds the setup with which a peer is fastest: each one once, the two best once more.
func (m *meter) fastest(e engine, j job) (setup, error) {
	if s, ok := m.journal.best(e.name, j); ok && e.has(s.Build) {
		return s, nil
	}
	var best *setup
	if j.depth() != "" {
		flat := j
		flat.Test, _, _ = strings.Cut(j.Test, "@")
		s, err := m.fastest(e, flat)
		if err != nil {
			return s, err
		}
		best = &s
	}
	found := search{Engine: e.name, Type: j.Type, Test: j.Test, CPU: j.CPU}
	try := func(s setup) error {
		got, _, err := m.sample(e, s, j)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(found.Tried, func(t trial) bool { return t.Setup == s })
		if at < 0 {
			at, found.Tried = len(found.Tried), append(found.Tried, trial{Setup: s})
		}
		found.Tried[at].Samples = append(found.Tried[at].Samples, got)
		return nil
	}
	setups := e.setups(best)
	for _, s := range setups {
		if err := try(s); err != nil {
			return setup{}, err
		}
	}
	found.sort()
	for _, t := range slices.Clone(found.Tried[:min(2, len(found.Tried))]) {
		if err := try(t.Setup); err != nil {
			return setup{}, err
		}
	}
	found.sort()
	for _, t := range found.Tried {
		fmt.Fprintf(os.Stderr, "peers: %s %s, %s: %.1f tokens/s with %s\n", j.Type, j.Test, e.name, t.rate(), t.Setup)
	}
	return found.Tried[0].Setup, m.journal.save(entry{Search: &found})
}

// sample measures once, again if other processes disturbed it.
func (m *meter) sample(e engine, s setup, j job) (sample, output, error) {
	for try := 1; ; try++ {
		before, err := m.probe.now()
		if err != nil {
			return sample{}, output{}, err
		}
		cmd := e.command(s, j)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		start, w := time.Now(), measure.StartWatch()
		b, err := cmd.Output()
		if err != nil {
			return sample{}, output{}, fmt.Errorf("%s: %w\n%s", cmd, err, tail(stderr.String(), 500))
		}
		span, noise := time.Since(start).Seconds(), w.Stop()
		used := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
		others := max(noise.OtherLoad-used/span, 0)
		behind, err := m.probe.now()
		if err != nil {
			return sample{}, output{}, err
		}
		if others > othersMax && try < tries {
			fmt.Fprintf(os.Stderr, "peers: other processes took %.2f CPUs; measured again\n", others)
			continue
		}
		if e.sweeps(j) { // it prints its lines to stderr
			b = stderr.Bytes()
		}
		out, err := parse(e.name, j, b)
		if err != nil {
			return sample{}, output{}, fmt.Errorf("%s: %w", cmd, err)
		}
		return sample{TS: out.ts, RoofGBps: (before + behind) / 2, Before: before, Behind: behind, Others: others}, out, nil
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// output is what an engine says of its second time.
type output struct {
	ts     float64 // tokens per second
	panels float64 // ck: bytes that it reads over those of the file
	peak   float64 // ck: share of the arithmetic peak, percent
}

// parse reads an engine's JSON.
func parse(name string, j job, b []byte) (output, error) {
	if name == ikName && j.depth() != "" {
		return parseSweep(j, b)
	}
	type result struct {
		Samples json.RawMessage `json:"samples_ts"` // the peers': a list of tokens per second
		Own     []struct {
			TS float64 `json:"tokens_per_s"`
		} `json:"samples"`
		Size  float64 `json:"model_size"`
		AvgTS float64 `json:"avg_ts"`
		GBps  float64 `json:"gb_per_s"`
		TS    struct {
			Median float64 `json:"median"`
		} `json:"tokens_per_s"`
		Peak float64 `json:"pct_peak"`
	}
	if i := bytes.IndexAny(b, "[{"); i >= 0 {
		b = b[i:]
	}
	var list []result
	if err := json.Unmarshal(b, &list); err != nil {
		var doc struct{ Results []result }
		if err := json.Unmarshal(b, &doc); err != nil {
			return output{}, fmt.Errorf("its JSON: %w", err)
		}
		list = doc.Results
	}
	if len(list) != 1 {
		return output{}, fmt.Errorf("its JSON has %d results, wants 1", len(list))
	}
	r := list[0]
	if name == ckName {
		if len(r.Own) == 0 || r.Size == 0 || r.TS.Median == 0 {
			return output{}, fmt.Errorf("its JSON has no samples")
		}
		return output{ts: r.Own[len(r.Own)-1].TS, panels: r.GBps * 1e9 / r.TS.Median / r.Size, peak: r.Peak}, nil
	}
	var ts []float64
	if err := json.Unmarshal(r.Samples, &ts); err != nil || len(ts) != 2 {
		return output{}, fmt.Errorf("its JSON has no two samples_ts")
	}
	return output{ts: ts[1]}, nil
}

// parseSweep reads the line of the job's depth from llama-sweep-bench.
func parseSweep(j job, b []byte) (output, error) {
	for _, line := range strings.Split(string(b), "\n") {
		var r struct {
			At int     `json:"n_kv"`
			PP float64 `json:"speed_pp"`
			TG float64 `json:"speed_tg"`
		}
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &r) == nil && fmt.Sprint(r.At) == j.depth() {
			if j.prompt() {
				return output{ts: r.PP}, nil
			}
			return output{ts: r.TG}, nil
		}
	}
	return output{}, fmt.Errorf("it printed no line for n_kv %s", j.depth())
}
