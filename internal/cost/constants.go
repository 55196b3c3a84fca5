package cost

import (
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/measure"
	"ck/internal/quant"
)

// All constants of the model. "Measured" is on the machine of docs/performance.md (two cores of a Zen 5 in a virtual machine), by ckbench run
// --steps of the models of docs/scaling.md unless another source is named; "stated" is taken from publications or is our assumption, and was
// not measured by us.

// Efficiency is what the matmuls of a weight type reach inside a walk.
type Efficiency struct {
	Read    float64 // share of the read bandwidth with one row: panels from memory
	Compute float64 // share of the arithmetic peak with many rows
	Source  string
}

// efficiencies are those of the matmuls alone, medians over shapes, one and two threads; what else a walk does is counted apart. Single rows
// are off by up to 15 %: roofs are sampled for milliseconds beside repetitions of seconds.
var efficiencies = map[quant.Type]Efficiency{
	quant.Q8_0: {0.85, 0.65, "measured"},
	quant.Q4_K: {0.81, 0.66, "measured"},
	quant.BF16: {0.85, 0.85, "measured"},
	quant.Q6_K: {0.80, 0.64, "measured"},
	quant.Q5_K: {0.75, 0.64, "as Q6_K, less where reading is the limit: bound by taking the bits apart"},
	quant.Q2_K: {0.70, 0.60, "as Q5_K, more arithmetic for each byte"},
	quant.Q4_0: {0.80, 0.65, "measured"},
	quant.Q4_1: {0.80, 0.65, "as Q4_0"},
	quant.Q5_0: {0.80, 0.65, "as Q4_0"},
	quant.Q5_1: {0.80, 0.65, "as Q4_0"},
	quant.F16:  {0.85, 0.75, "as BF16, in float32 arithmetic"},
	quant.F32:  {0.85, 0.75, "as F16"},
}

// Types whose blocks are rewritten read panels of another type's form, or nearly.
var (
	asQ8_0 = Efficiency{0.85, 0.65, "as Q8_0, in whose panels it lies"}
	asQ4_K = Efficiency{0.81, 0.64, "as Q4_K, whose panels are as large; prompts as Q6_K"}
)

// On tiers without VNNI, VPMADDWD widens what VPMADDUBSW made and takes the same pipes: half of the peak is left, more where the activations'
// scale holds for 256 elements and sums stay in 16 bits for longer. Measured: 15 and 25 % of the VNNI peak, which is twice AVX2's, for Q8_0 and
// Q4_K_M (llama-3.2-1b, prompts of 512, one thread).
const maddShare, maddShareK = 0.5, 0.75

// computeShare is the share of the arithmetic peak that matmuls of a format reach, with VNNI or without.
func computeShare(f *kernel.Format, madd bool) float64 {
	x := EfficiencyOf(f.Type).Compute
	switch {
	case madd && f.Act == kernel.ActQ8:
		return x * maddShare
	case madd && f.Act == kernel.ActQ8K:
		return x * maddShareK
	}
	return x
}

// EfficiencyOf is what matmuls of a weight type reach.
func EfficiencyOf(t quant.Type) Efficiency {
	if e, ok := efficiencies[t]; ok {
		return e
	}
	if kernel.ActFor(t, false) == kernel.ActQ8 {
		return asQ8_0
	}
	return asQ4_K
}

const (
	// attendCompute is the share of the float32 peak that attention over many rows reaches, of the keys that are seen. Measured.
	attendCompute = 0.51
	// attendOne is that of one row, where the memory is no limit. At least 0.55, as four query heads for a KV head keep up with 38 GB/s.
	attendOne = 0.60
	// attendRead is the share of the read bandwidth that attention of one row reaches. Measured: 88 % over an F16 cache for itself, about 80 in
	// walks after 4096 positions (docs/performance.md).
	attendRead = 0.80
	// attendHead is what a query head of a row takes to begin and to end. Measured: 16 us for the 32 heads of a layer of llama-3.2-1b.
	attendHead = 0.5e-6
	// itemSeconds is the fixed cost of an item of the plan for a worker: its code, operands and tables are in no cache where weights stream
	// through between two of its kind. Measured: 1 to 2 us for the small steps of generation.
	itemSeconds = 1e-6

	// arriveSeconds is one worker adding itself to a barrier's counter: its cache line comes from another core. Measured: two workers of one
	// socket meet in 0.07 to 0.1 us (ckbench barrier).
	arriveSeconds = 0.05e-6
	// waitClaim is what workers wait behind a matmul that they share, of what one of them claims at once: nobody takes over what is begun.
	waitClaim = 0.5
	// waitShare is what they wait behind steps that are cut in fixed parts, of these steps' time: no two cores are equally fast. Measured: 8 to 13 %
	// with two threads.
	waitShare = 0.10
	// linkSeconds is what every socket adds: the counter's line and the news cross the link. Stated: some hundred nanoseconds each way.
	linkSeconds = 0.5e-6
	// meetSeconds is a meeting of all homes of two sockets, with 16 KB of partial sums that are read from the other one. Stated, on paper: arrivals in two
	// levels 0.8 us, a flag over the link and back 0.5, seven lines a worker 0.4, release 0.3.
	meetSeconds = 2e-6

	// linkRead is what the cores of a socket together read of another one's memory, bytes a second. Stated: published measurements of local and remote
	// reading differ by a factor of two and more (248 of 555 GB/s on two sockets of twelve channels).
	linkRead = 100e9

	// firstUse is what the first use of a weight costs beside its arithmetic, in seconds of one worker per byte: page faults of the mapping and
	// packing into scratch. Measured: 95 to 117 ms for the first token of 1.3 GB on two threads where packed panels take 36 to 46.
	firstUse = 65e-3 * 2 / 1.3e9
	// packStay is packing panels to stay, in seconds of one worker per byte. Measured: one walk of 175 ms instead of 40 for 1.3 GB on two threads
	// (internal/walk/slot.go).
	packStay = 135e-3 * 2 / 1.3e9

	// readShare is the share of the theoretical bandwidth of the channels that reading reaches where nobody measured it, between a low and a
	// high one. Stated: STREAM reaches 75 to 90 % on DDR4 and DDR5 servers.
	readShare, readShareLow, readShareHigh = 0.82, 0.75, 0.90
	// coreRead is what one core reads at most, in bytes a second, where nobody measured it: fewer cores cannot use all channels. Stated; 43 GB/s
	// were measured on a Zen 5 with free channels, cores on large meshes reach about 12.
	coreRead = 12e9

	// adamBytes is the memory of full training in mixed precision with Adam, per parameter: BF16 weights and gradients (2 + 2), float32 master
	// weights and two moments (12). Published: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 3.1.
	adamBytes = 16
	// gradientBytes is what data-parallel training adds up over machines for each parameter and step: BF16.
	gradientBytes = 2
	// checkpointBytes is what full recomputation keeps of each layer, row and element of the hidden state: its input in BF16.
	// Published: Chen et al. 2016, arXiv:1604.06174.
	checkpointBytes = 2
	// Operations per parameter and token, of two for each pass of a multiplication and addition: forward 2, gradients of activations 2,
	// gradients of weights 2, and another forward 2 where activations are recomputed.
	opsForward, opsFull, opsLoRA = 2, 8, 6
)

// cycle is how many operations of a kind a core does per cycle at most; a multiplication and an addition are two.
type cycle struct {
	ops    map[string]float64
	madd   bool // integers are multiplied without VNNI
	Source string
}

// cycles of the ISA tiers, AVX-512 with two full-width ports.
var cycles = map[isa.Tier]cycle{
	isa.Go:      {kinds(4, 4, 4), false, "stated: scalar, two multiply-adds a cycle"},
	isa.AVX2:    {kinds(128, 32, 32), true, "published instruction tables: two ymm FMA or VPMADDUBSW a cycle"},
	isa.AVXVNNI: {kinds(128, 32, 32), false, "published instruction tables: two ymm VPDPBUSD a cycle"},
	isa.AVX512:  {kinds(128, 64, 64), true, "two zmm FMA a cycle; integers in 256 bits, as the kernels do"},
	isa.VNNI:    {kinds(256, 128, 64), false, "measured on Zen 5 (ckbench roofline): 1.09 TOP/s, 546, 273 GOP/s at 4.26 GHz"},
	isa.AMX:     {kinds(2048, 1024, 64), false, "published by Intel: 2048 INT8, 1024 BF16 operations per cycle and core"},
}

func kinds(int8, bf16, f32 float64) map[string]float64 {
	return map[string]float64{measure.Int8: int8, measure.BF16: bf16, measure.F32: f32}
}

// A Network joins machines, or sockets.
type Network struct {
	Name    string
	Bytes   float64 // bytes a second of one machine, each way
	Latency float64 // seconds of a message
	Source  string
}

// networks: line rate less 10 % for headers and protocol; latencies are stated, of small messages.
var networks = []Network{
	{"10 GbE, TCP", 10e9 / 8 * 0.9, 25e-6, "line rate less 10 %"},
	{"25 GbE, TCP", 25e9 / 8 * 0.9, 20e-6, "line rate less 10 %"},
	{"100 GbE, RoCE", 100e9 / 8 * 0.9, 3e-6, "line rate less 10 %"},
	{"200 Gb/s InfiniBand HDR", 200e9 / 8 * 0.9, 2e-6, "line rate less 10 %"},
	{"400 Gb/s InfiniBand NDR", 400e9 / 8 * 0.9, 2e-6, "line rate less 10 %"},
}

// Networks lists the networks that plans are told for.
func Networks() []Network { return networks }
