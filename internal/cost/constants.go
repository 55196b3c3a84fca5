package cost

import (
	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/quant"
)

// All constants of the model. "Measured" is on the machine of docs/performance.md (two cores of a Zen 5 in a virtual machine), there or
// where the source says; "stated" is taken from publications or is our assumption, and was not measured by us.

// Efficiency is what the matmuls of a weight type reach inside a walk.
type Efficiency struct {
	Read    float64 // share of the read bandwidth with one row: panels from memory
	Compute float64 // share of the arithmetic peak with many rows
	Source  string
}

// efficiencies: end to end shares measured before matmuls were shared and slices added in the kernels (llama-3.2-1b, two threads: decode 86, 74, 83 % of the read roof, prefill 47, 45,
// 74 % of the peak for Q8_0, Q4_K, BF16) less what this model counts apart: attention, elementwise steps, meetings. Others follow their
// kin: the kernels alone differ by a few points (go test -run '^$' -bench Matmul ./internal/kernel).
var efficiencies = map[quant.Type]Efficiency{
	quant.Q8_0: {0.87, 0.53, "measured, llama-3.2-1b, two threads"},
	quant.Q4_K: {0.77, 0.51, "measured, llama-3.2-1b, two threads"},
	quant.BF16: {0.84, 0.83, "measured, llama-3.2-1b, two threads"},
	quant.Q6_K: {0.83, 0.50, "between Q8_0 and Q4_K, as its kernels are"},
	quant.Q5_K: {0.77, 0.50, "as Q4_K"},
	quant.Q4_0: {0.82, 0.52, "as Q8_0, less for unpacking, as its kernels"},
	quant.Q4_1: {0.82, 0.50, "as Q4_0"},
	quant.Q5_0: {0.82, 0.50, "as Q4_0"},
	quant.Q5_1: {0.82, 0.50, "as Q4_0"},
	quant.F16:  {0.84, 0.75, "as BF16, in float32 arithmetic"},
	quant.F32:  {0.84, 0.75, "as F16"},
}

// direct is for types without kernels of their own: each walk decodes them to float32 panels and multiplies those.
var direct = Efficiency{0.80, 0.60, "as F16, less for panels that were just decoded"}

// EfficiencyOf is what matmuls of a weight type reach.
func EfficiencyOf(t quant.Type) Efficiency {
	if e, ok := efficiencies[t]; ok {
		return e
	}
	return direct
}

const (
	// attendCompute is the share of the float32 peak that attention over many rows reaches, of the keys that are seen. Measured: 15 to 20 % of
	// the time of qwen3-0.6b's prefill of 512 rows.
	attendCompute = 0.38
	// attendRead is the share of the read bandwidth that attention of one row reaches. Measured: 88 % over an F16 cache.
	attendRead = 0.88
	// elementRate is how many bytes a second a core moves in norms, rotations, activations and their quantization: data of the second-level
	// cache, written once and read once. Fitted to what prefill leaves beside matmuls and attention.
	elementRate = 40e9
	// itemSeconds is the fixed cost of an item of the plan for a worker. Measured: about 0.1 us with a clock reading; the rest is the call.
	itemSeconds = 0.2e-6
	// directSeconds is one worker decoding one weight without a kernel. Measured: docs/performance.md, known gaps.
	directSeconds = 2e-9

	// meetTwo is a barrier of two pinned workers of one socket. Measured: 0.07 to 0.1 us (ckbench barrier).
	meetTwo = 0.1e-6
	// waitTwo is what two workers wait for each other at a barrier of a walk beyond that: they are never done at the same time. Stated.
	waitTwo = 0.3e-6
	// meetSocket is what every further socket adds: its cache lines cross the link. Stated: some hundred nanoseconds each way.
	meetSocket = 1e-6

	// firstUse is what the first use of a weight costs beside its arithmetic, in seconds of one worker per byte: page faults of the mapping and
	// packing into scratch. Measured: 95 to 117 ms for the first token of 1.3 GB on two threads where packed panels take 36 to 46.
	firstUse = 65e-3 * 2 / 1.3e9
	// packStay is packing panels to stay, in seconds of one worker per byte. Measured: one walk of 175 ms instead of 40 for 1.3 GB on two threads
	// (internal/walk/slot.go).
	packStay = 135e-3 * 2 / 1.3e9

	// readShare is the share of the theoretical bandwidth of the channels that reading reaches where nobody measured it. Stated: STREAM reaches
	// 75 to 90 % on DDR4 and DDR5 servers.
	readShare = 0.82
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
	Source string
}

// cycles of the ISA tiers, AVX-512 with two full-width ports.
var cycles = map[isa.Tier]cycle{
	isa.Go:      {kinds(4, 4, 4), "stated: scalar, two multiply-adds a cycle"},
	isa.AVX2:    {kinds(128, 32, 32), "published instruction tables: two ymm FMA or VPMADDUBSW a cycle"},
	isa.AVXVNNI: {kinds(128, 32, 32), "published instruction tables: two ymm VPDPBUSD a cycle"},
	isa.AVX512:  {kinds(128, 64, 64), "two zmm FMA a cycle; integers in 256 bits, as the kernels do"},
	isa.VNNI:    {kinds(256, 128, 64), "measured on Zen 5 (ckbench roofline): 1.09 TOP/s, 546, 273 GOP/s at 4.26 GHz"},
	isa.AMX:     {kinds(2048, 1024, 64), "published by Intel: 2048 INT8, 1024 BF16 operations per cycle and core"},
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
