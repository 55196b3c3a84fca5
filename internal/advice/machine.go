package advice

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"ck/internal/cost"
	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// Machine is a machine to plan for, with the memory that a model may take.
type Machine struct {
	cost.Machine
	Limit int64  // bytes; 0: not told
	Why   string // how the roofs are known
	CPU   string // --cpu: the tier of the kernels at most; "": the best
}

// Kernels is the tier of the kernels that would run.
func (x Machine) Kernels() isa.Tier {
	tier := x.KernelTier()
	if t, err := isa.Parse(x.CPU); x.CPU != "" && err == nil {
		tier = min(tier, t)
	}
	return tier
}

// machineFileBytes bounds a machine's description.
const machineFileBytes = 1 << 20

// tomlToJSON makes JSON of TOML.
func tomlToJSON(b []byte) ([]byte, error) {
	var v map[string]any
	if err := toml.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return json.Marshal(v)
}

// ParsePeak reads "2180" (int8) or "int8=2180,bf16=1090,f32=546", in GOP/s.
func ParsePeak(s string) (map[string]float64, error) {
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
			return nil, fmt.Errorf("--peak: %q is no peak such as 2180 or int8=2180,bf16=1090,f32=546 (GOP/s)", s)
		}
		out[kind] = x
	}
	return out, nil
}

// ReadMachine is the machine that a JSON or TOML file describes; its name is that of the file if it has none.
func ReadMachine(name string) (cost.Machine, error) {
	ext := strings.ToLower(filepath.Ext(name))
	st, err := os.Stat(name)
	if err == nil && st.Size() > machineFileBytes {
		return cost.Machine{}, fmt.Errorf("%s: %d bytes are too many for the description of a machine; see cktopo plan --help", name, st.Size())
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return cost.Machine{}, err
	}
	if ext == ".toml" {
		if b, err = tomlToJSON(b); err != nil {
			return cost.Machine{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	x, err := cost.ParseMachine(b)
	if err != nil {
		return x, fmt.Errorf("%s: %w; see cktopo plan --help", name, err)
	}
	if x.Name == "" {
		x.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	return x, nil
}

// Surveyed is the machine that a survey finds. Its roofs are not known.
func Surveyed(s *topo.Survey) (Machine, error) {
	workers, _ := s.Workers()
	nodes := 0
	for _, n := range s.Nodes {
		if n.MemTotal > 0 && n.Allowed {
			nodes++
		}
	}
	x := Machine{Machine: cost.Machine{Name: s.Model, Sockets: max(1, len(s.Packages)), Cores: len(workers), ISA: isa.Go.String()}}
	if x.Name == "" {
		x.Name = "this machine"
	}
	x.Sockets = min(x.Sockets, x.Cores)
	if x.Nodes = max(1, nodes); x.Nodes%x.Sockets != 0 {
		x.Nodes = x.Sockets
	}
	best := s.ISA.Best()
	x.ISA = best.String()
	if best == isa.VNNI && !s.ISA.Uses(isa.FeatAVX512BF16) {
		x.OpsPerCycle = map[string]float64{measure.BF16: 64} // by float32
	}
	x.Limit, _ = s.Machine.Memory()
	x.MemoryGiB = float64(s.MemTotal) / (1 << 30)
	if err := x.Check(); err != nil {
		return x, fmt.Errorf("the machine makes no sense: %w", err)
	}
	return x, nil
}

// SetRoofs puts in what is known of so many threads: peaks in GOP/s by kind, nil: not given; the read bandwidth in GB/s, 0: not given.
func (x *Machine) SetRoofs(peaks map[string]float64, bandwidth float64, threads int) {
	if peaks != nil {
		x.PeakGops = map[string]float64{}
		for k, v := range peaks { // given for the threads; a machine's is for all its cores
			x.PeakGops[k] = v * float64(x.Cores) / float64(min(threads, x.Cores))
		}
		x.FillPeaks()
	}
	if bandwidth > 0 {
		x.ThreadsRead = bandwidth * 1e9
	}
}

// Why roofs are not measured.
var (
	ErrOtherMachine = errors.New("measures this machine, not a saved one")
	ErrNoRoom       = errors.New("there is too little memory to tell it from the caches")
)

// MeasureRoofs measures the read bandwidth and the peaks of this machine with so many threads, each the best of some samples. x must be this machine.
func (x *Machine) MeasureRoofs(threads int) error {
	m, err := topo.Live()
	if err != nil {
		return err
	}
	own, _ := m.Workers()
	if x.Cores != len(own) {
		return ErrOtherMachine
	}
	bytes := measure.RoofBytes(m, threads)
	if bytes == 0 {
		return ErrNoRoom
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
	x.ThreadsRead, x.Why = roofs.BestRead(), "measured just now"
	return nil
}
