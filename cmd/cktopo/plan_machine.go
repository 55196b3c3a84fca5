package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// planMachine is a machine to plan for, with the memory that a model may take.
type planMachine struct {
	cost.Machine
	memory int64  // bytes; 0: not told
	why    string // how the roofs are known
	cpu    string // --cpu: the tier of the kernels at most; "": the best
}

// kernels is the tier of the kernels that would run.
func (x planMachine) kernels() isa.Tier {
	tier := x.KernelTier()
	if t, err := isa.Parse(x.cpu); x.cpu != "" && err == nil {
		tier = min(tier, t)
	}
	return tier
}

// machineFileBytes bounds a machine's description.
const machineFileBytes = 1 << 20

// planned lists the machines that --machine names, or the one at hand, with the values of the command line put in.
func (o *planOptions) planned() ([]planMachine, error) {
	var out []planMachine
	if o.machines == "" {
		x, err := o.here()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	} else {
		if o.measure {
			return nil, cli.Usage("--measure: measures this machine, not one that is described; leave out --machine")
		}
		for name := range strings.SplitSeq(o.machines, ",") {
			x, err := namedMachine(strings.TrimSpace(name))
			if err != nil {
				return nil, err
			}
			out = append(out, planMachine{Machine: x, memory: int64(x.MemoryGiB * (1 << 30))})
		}
	}
	if o.measure && (o.peak != "" || o.bandwidth > 0) {
		return nil, cli.Usage("--measure: measures what --bandwidth and --peak give; leave out one or the other")
	}
	if o.bandwidth > 0 && o.bandwidth < 0.01 {
		return nil, cli.Usage("--bandwidth: %g GB/s is too little for any machine", o.bandwidth)
	}
	peaks, err := parsePeak(o.peak)
	if err != nil {
		return nil, err
	}
	for i := range out {
		x := &out[i]
		x.cpu = o.app.Common.CPU
		if l := o.app.Common.MemLimit; l > 0 {
			x.memory = l
		}
		threads := o.app.Common.Threads
		if threads == 0 {
			threads = x.Cores
		}
		if peaks != nil {
			x.PeakGops = map[string]float64{}
			for k, v := range peaks { // given for the threads; a machine's is for all its cores
				x.PeakGops[k] = v * float64(x.Cores) / float64(min(threads, x.Cores))
			}
			x.FillPeaks()
		}
		if o.bandwidth > 0 {
			x.ThreadsRead = o.bandwidth * 1e9
		}
		if o.measure {
			if err := o.measureRoofs(x, threads); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// namedMachine is a built-in machine, or the one that a file describes.
func namedMachine(name string) (cost.Machine, error) {
	if x, ok := cost.FindMachine(name); ok {
		return x, nil
	}
	ext := strings.ToLower(filepath.Ext(name))
	if _, err := os.Stat(name); err != nil && ext == "" && !strings.ContainsRune(name, '/') {
		return cost.Machine{}, cli.Usage("--machine: %q is neither a file nor one of %s", name, strings.Join(cost.MachineNames(), ", "))
	}
	st, err := os.Stat(name)
	if err == nil && st.Size() > machineFileBytes {
		return cost.Machine{}, cli.Input("%s: %d bytes are too many for the description of a machine; see cktopo plan --help", name, st.Size())
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return cost.Machine{}, cli.Input("%w", err)
	}
	if ext == ".toml" {
		if b, err = tomlToJSON(b); err != nil {
			return cost.Machine{}, cli.Input("%s: %w", name, err)
		}
	}
	x, err := cost.ParseMachine(b)
	if err != nil {
		return x, cli.Input("%s: %w; see cktopo plan --help", name, err)
	}
	if x.Name == "" {
		x.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	return x, nil
}

// tomlToJSON makes JSON of TOML.
func tomlToJSON(b []byte) ([]byte, error) {
	v := viper.New()
	v.SetConfigType("toml")
	if err := v.ReadConfig(bytes.NewReader(b)); err != nil {
		return nil, fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return json.Marshal(v.AllSettings())
}

// parsePeak reads "2180" (int8) or "int8=2180,bf16=1090,f32=546", in GOP/s.
func parsePeak(s string) (map[string]float64, error) {
	if s == "" {
		return nil, nil
	}
	out := map[string]float64{}
	for part := range strings.SplitSeq(s, ",") {
		kind, num, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			kind, num = measure.Int8, kind
		}
		x, err := strconv.ParseFloat(num, 64)
		if err != nil || !(x >= 0.01 && x <= 1e12) || !slices.Contains([]string{measure.Int8, measure.BF16, measure.F32}, kind) || out[kind] > 0 {
			return nil, cli.Usage("--peak: %q is no peak such as 2180 or int8=2180,bf16=1090,f32=546 (GOP/s)", s)
		}
		out[kind] = x
	}
	return out, nil
}

// here is the machine that the survey finds.
func (o *planOptions) here() (planMachine, error) {
	s, err := o.survey()
	if err != nil {
		return planMachine{}, err
	}
	workers, _ := s.Workers()
	nodes := 0
	for _, n := range s.Nodes {
		if n.MemTotal > 0 && n.Allowed {
			nodes++
		}
	}
	x := planMachine{Machine: cost.Machine{Name: s.Model, Sockets: max(1, len(s.Packages)), Cores: len(workers), ISA: isa.Go.String()}}
	if x.Name == "" {
		x.Name = "this machine"
	}
	x.Sockets = min(x.Sockets, x.Cores)
	if x.Nodes = max(1, nodes); x.Nodes%x.Sockets != 0 {
		x.Nodes = x.Sockets
	}
	if n := len(s.ISA.Tiers); n > 0 {
		x.ISA = s.ISA.Tiers[n-1]
	}
	if x.ISA == isa.VNNI.String() && !slices.Contains(s.ISA.Features, "avx512_bf16") {
		x.OpsPerCycle = map[string]float64{measure.BF16: 64} // by float32
	}
	x.memory, _ = s.Machine.Memory()
	x.MemoryGiB = float64(s.MemTotal) / (1 << 30)
	if err := x.Check(); err != nil {
		return x, cli.Input("the machine makes no sense: %w", err)
	}
	return x, nil
}

// measureRoofs measures the read bandwidth and the peaks of this machine with so many threads, each the best of some samples.
func (o *planOptions) measureRoofs(x *planMachine, threads int) error {
	m, err := topo.Read("")
	if err != nil {
		return err
	}
	own, _ := m.Workers()
	if x.Cores != len(own) {
		return cli.Usage("--measure: measures this machine, not a saved one; leave out --root")
	}
	bytes := measure.RoofBytes(m, threads)
	if bytes == 0 {
		return cli.Resource("--measure: there is too little memory to tell it from the caches; give --bandwidth and --peak")
	}
	cpus := m.CPUsFor(threads)
	t, err := team.New(cpus, team.Options{Pin: threads <= len(own), Quota: len(own)})
	if err != nil {
		if t, err = team.New(cpus, team.Options{Quota: len(own)}); err != nil {
			return err
		}
	}
	defer t.Close()
	roofs, err := measure.NewRoofsOf(t, bytes)
	if err != nil {
		return err
	}
	defer roofs.Close()
	x.PeakGops = map[string]float64{}
	for range 3 {
		if _, err := roofs.ReadNow(); err != nil {
			return err
		}
		for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
			peak, err := roofs.Peak(k)
			if err != nil {
				return err
			}
			x.PeakGops[k] = peak / 1e9 * float64(x.Cores) / float64(min(threads, x.Cores))
		}
	}
	x.ThreadsRead, x.why = roofs.BestRead(), "measured just now"
	return nil
}
