package cost

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
)

func modelOf(t testing.TB, name, typ string) *Model {
	t.Helper()
	s, err := synth.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OfShape(name, s, typ)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The sizes of all recipes are those that llama-quantize prints, to its hundredth of a MiB.
func TestWeightsAsLlamaQuantize(t *testing.T) {
	for _, name := range []string{"llama-3.1-8b", "llama-3.2-1b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-30b-a3b", "gemma-3-1b",
		"gpt-oss-20b"} {
		b, err := os.ReadFile(testkit.Data(t, "gguf-shapes/"+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Recipes map[string]struct {
				MiB   float64
				Error string
			}
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		n := 0
		for recipe, w := range want.Recipes {
			if strings.Contains(recipe, "+") || w.Error != "" || w.MiB == 0 {
				continue
			}
			if _, ok := quant.FindRecipe(recipe); !ok {
				continue
			}
			n++
			m := modelOf(t, name, recipe)
			if got := float64(m.FileBytes()) / (1 << 20); math.Abs(got-w.MiB) > 0.011 {
				t.Errorf("%s %s: %.3f MiB, llama-quantize says %.2f", name, recipe, got, w.MiB)
			}
		}
		if n < 20 {
			t.Errorf("%s: %d recipes were compared", name, n)
		}
	}
}

// Every known shape can be planned, and has the parameters that its makers count.
func TestKnownShapes(t *testing.T) {
	want := map[string]float64{"llama-3.1-70b": 70553706496, "llama-3.1-8b": 8030261248, "llama-3.2-1b": 1235814400, "llama-3.2-3b": 3212749824,
		"llama-3.3-70b": 70553706496, "mixtral-8x7b": 46702792704, "mixtral-8x22b": 140630071296, "qwen3-30b-a3b": 30532122624, "qwen3-235b-a22b": 235093634560, "mistral-7b": 7248023552, "qwen2.5-7b": 7615616512, "qwen3-0.6b": 596049920, "qwen3-1.7b": 1720574976,
		"qwen3-14b": 14768307200, "qwen3-32b": 32762123264, "qwen3-4b": 4022468096, "gemma-3-1b": 999885952, "gemma-3-4b": 3880263168,
		"gemma-3-12b": 11766034176, "gemma-3-27b": 27009346304, "gemma-4-26b-a4b": 25233142046, "gpt-oss-20b": 20914757184, "gpt-oss-120b": 116829156672, "phi-4": 14659507200, "qwen3-8b": 8190735360}
	for _, name := range synth.Names() {
		if got := modelOf(t, name, "Q4_K_M").Params(); got != want[name] {
			t.Errorf("%s: %.0f parameters, want %.0f", name, got, want[name])
		}
	}
}

// llama-3.1-8b by hand.
func TestByHand(t *testing.T) {
	m := modelOf(t, "llama-3.1-8b", "BF16")
	if got := m.Params(); got != 8030261248 {
		t.Errorf("%.0f parameters", got)
	}
	// A position: 32 layers x 8 KV heads x (128 + 128) x 2 bytes.
	if n, err := m.CacheBytes(quant.F16, 0); err != nil || n != 131072 {
		t.Errorf("F16: %d bytes a position, %v", n, err)
	}
	if n, err := m.CacheBytes(quant.F32, 32); err != nil || n != 131072*2*4 {
		t.Errorf("F32, a KV head for each head: %d bytes a position, %v", n, err)
	}
	if n, err := m.CacheBytes(quant.Q8_0, 0); err != nil || n < 131072*17/32 || n > 131072*20/32 {
		t.Errorf("Q8_0: %d bytes a position, %v", n, err)
	}
	if _, err := m.CacheBytes(quant.Q6_K, 0); err == nil {
		t.Error("a KV cache in Q6_K")
	}
	layouts := m.CacheLayouts()
	if len(layouts) != 3 || layouts[1].Heads != 32 || layouts[2].Heads != 1 || layouts[1].Bytes["F16"] != 4*layouts[0].Bytes["F16"] {
		t.Errorf("layouts %+v", layouts)
	}
	sum := int64(0)
	for _, p := range m.Parts() {
		sum += p.Bytes
		want := map[string]int64{Embedding: 128256 * 4096 * 2, Output: 128256 * 4096 * 2, Attention: 32 * 2 * (2*4096*4096 + 2*4096*1024),
			FFN: 32 * 2 * 3 * 4096 * 14336, Other: 65 * 4096 * 4}[p.Class]
		if p.Bytes != want {
			t.Errorf("%s: %d bytes, by hand %d", p.Class, p.Bytes, want)
		}
	}
	if sum != m.FileBytes() {
		t.Errorf("%d bytes in parts, %d in all", sum, m.FileBytes())
	}
	// BF16 panels are as large as the file's matrices; the embedding is read from the file.
	if _, panels := m.PanelBytes(); panels != sum-128256*4096*2-65*4096*4 {
		t.Errorf("%d bytes of panels", panels)
	}
	x := m.Training(1024, 16)
	if x.Full != 16*8030261248 {
		t.Errorf("full training takes %d bytes", x.Full)
	}
	// Rank 16: q, o 4096+4096 each, k, v 4096+1024 each, gate, up, down 4096+14336 each.
	if want := 32.0 * 16 * (2*8192 + 2*5120 + 3*18432); x.LoRAParams != want {
		t.Errorf("%.0f parameters of adapters, by hand %.0f", x.LoRAParams, want)
	}
	if x.LoRA != 2*8030261248+16*int64(x.LoRAParams) {
		t.Errorf("LoRA takes %d bytes", x.LoRA)
	}
	if n := x.Machines(64 << 30); n < 2 || x.Sharded(n) > 64<<30 || x.Sharded(n-1) <= 64<<30 {
		t.Errorf("%d machines of 64 GiB, each with %d bytes", n, x.Sharded(n))
	}
	if n := x.Machines(1 << 20); n != 0 {
		t.Errorf("%d machines of a MiB", n)
	}
}

// The bytes and operations of a walk, by hand: every matrix once.
func TestWalkByHand(t *testing.T) {
	m := modelOf(t, "llama-3.1-8b", "BF16")
	x, _ := FindMachine("2s-144c-24ch")
	r := Run{Prompt: 512, Context: 1000, Rows: 1, UBatch: 512, KV: quant.F16}
	d, err := m.Decode(r, x.Limits(isa.VNNI, 1))
	if err != nil {
		t.Fatal(err)
	}
	layers := 32.0 * (2*4096*4096 + 2*4096*1024 + 3*4096*14336)
	out := 128256.0 * 4096
	if want := 2*(layers+out) + 131072*1000; d.Bytes != want {
		t.Errorf("decode reads %.0f bytes, by hand %.0f", d.Bytes, want)
	}
	if want := 2*(layers+out) + 32*2*32*256*1000; d.Ops != want {
		t.Errorf("decode has %.0f operations, by hand %.0f", d.Ops, want)
	}
	if d.Meetings != 0 || d.Barriers != 0 {
		t.Errorf("one worker meets: %+v", d)
	}
	p, err := m.Prefill(r, x.Limits(isa.VNNI, 72))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing behind the last attention is computed for rows whose logits nobody wants: the last attn_output, feed-forward, output.
	last := 4096.0*4096 + 3*4096*14336
	if want := 2*512*(layers-last) + 2*(last+out) + 512*256.5*32*2*32*256; math.Abs(p.Ops-want) > 1 {
		t.Errorf("prefill has %.0f operations, by hand %.0f", p.Ops, want)
	}
	if p.Meetings <= 0 || p.Barriers < 32 {
		t.Errorf("72 workers: %+v", p)
	}
}

// 250 billion parameters, 4096 tokens, 400 ms: 2 x 250e9 x 4096 / 0.4 = 5.12 PFLOP/s.
func TestPublishedProjection(t *testing.T) {
	s := ShapeOfSize(250e9)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for typ, bytes := range map[string]float64{"BF16": 2, "Q8_0": 1.0625, "Q4_K": 0.5625} {
		m, err := OfShape("250B", s, typ)
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Params(); math.Abs(p/250e9-1) > 0.01 {
			t.Fatalf("%.4g parameters", p)
		}
		if got := float64(m.FileBytes()) / m.Params() / bytes; math.Abs(got-1) > 0.001 {
			t.Errorf("%s: %.4f of %g bytes a parameter", typ, got, bytes)
		}
		if ops := m.PromptOps(4096) / 0.4; math.Abs(ops/5.12e15-1) > 0.01 {
			t.Errorf("400 ms need %.4g OP/s", ops)
		}
		// 144 cores x 2.7 GHz x 1024 or 2048 operations; half as many for 72.
		for name, m12 := range map[string]struct{ cores, sets float64 }{"2s-72c-12ch": {72, 1}, "2s-72c-24ch": {72, 2}, "2s-144c-24ch": {144, 2}} {
			x, ok := FindMachine(name)
			if !ok {
				t.Fatal(name)
			}
			kind, err := m.Kind()
			if err != nil {
				t.Fatal(err)
			}
			v := m.JudgePrefill(x, kind, 4096, 0.4)
			peak := m12.cores * 2.7e9 * map[string]float64{measure.Int8: 2048, measure.BF16: 1024}[kind]
			if v.Possible || math.Abs(v.Has/peak-1) > 1e-9 || math.Abs(v.Times*v.Has/v.Need-1) > 1e-9 {
				t.Errorf("%s on %s: %+v, the peak is %.4g", typ, name, v, peak)
			}
			r := Run{Prompt: 4096, Context: 4096, Rows: 1, UBatch: 512, KV: quant.F16}
			d, err := m.JudgeDecode(x, r, 8)
			if err != nil {
				t.Fatal(err)
			}
			bw := m12.sets * 12 * 6400e6 * 8
			if d.Has != bw {
				t.Errorf("%s has %.4g B/s, by hand %.4g", name, d.Has, bw)
			}
			// 8 tokens/s: only a quarter of the bytes through twice the channels.
			if want := typ == "Q4_K" && m12.sets == 2; d.Possible != want {
				t.Errorf("8 tokens/s of %s on %s: %+v", typ, name, d)
			}
		}
	}
}

// Sizes become shapes of about that size, with sound heads.
func TestShapeOfSize(t *testing.T) {
	for _, n := range []float64{5e8, 1e9, 3e9, 8e9, 13e9, 70e9, 405e9, 1e12, 5e12} {
		s := ShapeOfSize(n)
		if err := s.Check(); err != nil {
			t.Errorf("%g: %v", n, err)
			continue
		}
		got := 2*float64(s.Vocab)*float64(s.Hidden) +
			float64(s.Layers)*float64(s.Hidden)*(2*float64(s.Heads*s.HeadDim)+2*float64(s.KVHeads*s.HeadDim)+3*float64(s.FFN))
		if math.Abs(got/n-1) > 0.03 {
			t.Errorf("%g: the shape %+v has %g", n, s, got)
		}
	}
	for s, want := range map[string]float64{"250B": 250e9, "1.5t": 1.5e12, "600M": 600e6, "8b": 8e9} {
		if n, err := ParseParams(s); err != nil || n != want {
			t.Errorf("%s: %g, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "B", "-5B", "1e9", "0x10B", "NaN", "InfB", "1000T", "3", "2 B", "1_0B"} {
		if n, err := ParseParams(s); err == nil {
			t.Errorf("%q: %g", s, n)
		}
	}
}

// More bytes are never faster, nor less bandwidth, less peak, more rows, longer contexts.
func TestMonotonic(t *testing.T) {
	m := modelOf(t, "qwen3-0.6b", "Q8_0")
	small := modelOf(t, "qwen3-0.6b", "Q4_0")
	base := Run{Prompt: 300, Context: 1000, Rows: 1, UBatch: 128, KV: quant.F16}
	l := Limits{Workers: 4, Sockets: 1, Read: 80e9, Peak: kinds(2e12, 1e12, 5e11)}
	total := func(m *Model, r Run, l Limits) (prefill, decode float64) {
		t.Helper()
		p, err := m.Prefill(r, l)
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.Decode(r, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []float64{p.Total(), d.Total()} {
			if !(x > 0) || math.IsInf(x, 0) {
				t.Fatalf("%g seconds", x)
			}
		}
		return p.Total(), d.Total()
	}
	p0, d0 := total(m, base, l)
	if _, d := total(small, base, l); d >= d0 {
		t.Errorf("fewer bytes: %g after %g", d, d0)
	}
	for what, change := range map[string]func(*Run, *Limits){
		"half the bandwidth": func(_ *Run, l *Limits) { l.Read /= 2 },
		"half the peak":      func(_ *Run, l *Limits) { l.Peak = kinds(1e12, 5e11, 2.5e11) },
		"no VNNI":            func(_ *Run, l *Limits) { l.Madd = true },
		"two sockets":        func(_ *Run, l *Limits) { l.Sockets = 2 },
		"a longer context":   func(r *Run, _ *Limits) { r.Context *= 4 },
		"more sequences":     func(r *Run, _ *Limits) { r.Rows = 8 },
		"a wider cache":      func(r *Run, _ *Limits) { r.KV = quant.F32 },
	} {
		r, x := base, l
		change(&r, &x)
		if p, d := total(m, r, x); p < p0 || d < d0 || p == p0 && d == d0 {
			t.Errorf("%s: prefill %g after %g, decode %g after %g", what, p, p0, d, d0)
		}
	}
	for _, name := range MachineNames() {
		x, ok := FindMachine(name)
		if !ok {
			t.Fatalf("%s does not check", name)
		}
		least := 0.0
		for n := 1; n <= x.Cores; n *= 2 {
			y := x.Limits(x.KernelTier(), n)
			if y.Read < least || y.Read > x.TheoryBandwidth() {
				t.Errorf("%s: %d cores read %g B/s", name, n, y.Read)
			}
			least = y.Read
		}
		e, _, err := m.Expect(x, x.KernelTier(), x.Cores, 1, func(l Limits) (Time, error) { return m.Decode(base, l) },
			func(l Limits) (Time, error) { return m.LeastDecode(base, l) })
		if err != nil || !(e.Low > 0 && e.Low <= e.Mid && e.Mid <= e.Bound && e.High <= e.Bound) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// The least time of a prompt does not depend on how it is cut, and reads every weight once.
func TestLeastPrefill(t *testing.T) {
	m := modelOf(t, "qwen3-0.6b", "BF16")
	l := Limits{Workers: 1, Sockets: 1, Read: 1e9, Peak: kinds(1e15, 1e15, 1e15)}
	r := Run{Prompt: 300, Context: 300, Rows: 1, UBatch: 20, KV: quant.F16}
	a, err := m.LeastPrefill(r, l)
	if err != nil {
		t.Fatal(err)
	}
	r.UBatch = 512
	b, err := m.LeastPrefill(r, l)
	if err != nil {
		t.Fatal(err)
	}
	_, panels := m.PanelBytes()
	if a != b || a.Bytes < float64(panels) || a.Bytes > 1.1*float64(panels) || a.Total() != a.Bytes/1e9 {
		t.Errorf("%+v in pieces of 20, %+v of 512; %d bytes of panels", a, b, panels)
	}
}

// A file's own tensors give what its shape gives.
func TestFileAsShape(t *testing.T) {
	s, err := synth.Find("qwen3-0.6b")
	if err != nil {
		t.Fatal(err)
	}
	s.Layers, s.Vocab, s.Hidden, s.FFN, s.Heads, s.KVHeads = 2, 1000, 256, 512, 4, 2
	f, err := synth.Model("m", s, quant.Q8_0, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, err := OfFile("m", f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OfShape("m", s, "Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	r := Run{Prompt: 100, Context: 100, Rows: 2, UBatch: 64, KV: quant.Q8_0}
	l := Limits{Workers: 2, Sockets: 1, Read: 80e9, Peak: kinds(2e12, 1e12, 5e11)}
	ma, err := a.Memory(r, 2)
	if err != nil {
		t.Fatal(err)
	}
	mb, err := b.Memory(r, 2)
	if err != nil {
		t.Fatal(err)
	}
	pa, err := a.Prefill(r, l)
	if err != nil {
		t.Fatal(err)
	}
	pb, err := b.Prefill(r, l)
	if err != nil {
		t.Fatal(err)
	}
	if ma.File != mb.File || ma.Panels != mb.Panels || ma.KV != mb.KV || ma.Activations != mb.Activations || pa != pb {
		t.Errorf("file %+v %+v, shape %+v %+v", ma, pa, mb, pb)
	}
	if ma.KV != 2*128*ma.KVPosition || ma.Activations <= 0 || ma.Need(true) != ma.Panels+ma.KV+ma.Activations {
		t.Errorf("memory %+v", ma)
	}
	f.Tensors[0].Type = quant.I8
	if _, err := OfFile("m", f); err == nil || !strings.Contains(err.Error(), f.Tensors[0].Name) {
		t.Errorf("weights of I8: %v", err)
	}
	if _, err := OfFile("m", gguf.NewModel("empty")); err == nil || !strings.Contains(err.Error(), "general.architecture") {
		t.Errorf("an empty file: %v", err)
	}
}

// What limits the workers of a part of a machine.
func TestLimits(t *testing.T) {
	x, _ := FindMachine("2s-144c-24ch")
	all, _ := x.ReadBandwidth()
	if all != 0.82*24*6400e6*8 {
		t.Fatalf("%g B/s", all)
	}
	for n, want := range map[int]Limits{
		1:   {Workers: 1, Sockets: 1, Read: 12e9, Core: 12e9},
		72:  {Workers: 72, Sockets: 1, Read: all / 2, Core: 12e9}, // the other socket's channels are free and far
		73:  {Workers: 73, Sockets: 2, Read: 73 * 12e9, Core: 12e9},
		144: {Workers: 144, Sockets: 2, Read: all, Core: 12e9},
		288: {Workers: 288, Sockets: 2, Read: all, Core: 12e9},
	} {
		l := x.Limits(isa.VNNI, n)
		if l.Workers != want.Workers || l.Sockets != want.Sockets || l.Read != want.Read || l.Core != want.Core {
			t.Errorf("%d workers: %+v, want %+v", n, l, want)
		}
		// VDPBF16PS starts once a cycle, FMA and VPDPBUSD twice.
		c := 2.7e9 * float64(min(n, 144))
		if l.Peak[measure.Int8] != c*256 || l.Peak[measure.BF16] != c*64 || l.Peak[measure.F32] != c*64 {
			t.Errorf("%d workers: %v", n, l.Peak)
		}
	}
	if b := x.Bound(); b.Peak[measure.Int8] != 144*2.7e9*2048 || b.Peak[measure.BF16] != 144*2.7e9*1024 || b.Read != 24*6400e6*8 {
		t.Errorf("bound %+v", b)
	}
	x.Nodes = 6 // three on each socket
	if l := x.Limits(isa.VNNI, 73); l.Read != min(all*4/6, 73*12e9) || l.Sockets != 2 {
		t.Errorf("73 workers on four of six nodes: %+v", l)
	}
	// A measurement of the threads goes before all.
	x.ThreadsRead = 5e9
	if l := x.Limits(isa.VNNI, 4); l.Read != 5e9 || l.Core != 1.25e9 || x.Stated() {
		t.Errorf("%+v", l)
	}
	y, err := ParseMachine([]byte(`{"cores":4,"ghz":4,"isa":"vnni","bandwidth_gbs":80}`))
	if err != nil {
		t.Fatal(err)
	}
	if l := y.Limits(isa.VNNI, 1); l.Read != 20e9 || y.Stated() {
		t.Errorf("a core of four that read 80 GB/s: %+v", l)
	}
}

// Panels are dealt whole: 16 panels over 72 workers take as long as 72 would.
func TestUneven(t *testing.T) {
	for _, c := range []struct {
		n, workers int
		want       float64
	}{{16, 72, 4.5}, {208, 72, 3 * 72 / 208.0}, {144, 72, 1}, {8, 1, 1}, {9, 2, 10 / 9.0}, {0, 4, 0}} {
		if got := uneven(c.n, c.workers); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d over %d: %g, want %g", c.n, c.workers, got, c.want)
		}
	}
	l := Limits{Workers: 8, Read: 100e9, Core: 20e9, Peak: kinds(1e12, 5e11, 2.5e11)}
	// 4 panels over 8 workers: half of the workers compute; four of them read 80 GB/s.
	if x, reading := l.seconds(plan.Work{Bytes: 8e9, Ops: 1e9, Kind: measure.Int8}, 1, 1, 2); math.Abs(x-0.1) > 1e-12 || x != reading {
		t.Errorf("reading: %g, %g", x, reading)
	}
	if x, reading := l.seconds(plan.Work{Bytes: 8e6, Ops: 1e12, Kind: measure.Int8}, 1, 0.5, 2); math.Abs(x-4) > 1e-12 || reading != 0 {
		t.Errorf("computing: %g, %g", x, reading)
	}
}

// The budget is the least under which the engine packs and has room for the cache.
func TestBudget(t *testing.T) {
	for _, x := range []Memory{{Panels: 900 << 30, KV: 1 << 30, Activations: 1 << 30}, {Panels: 10 << 30, KV: 500 << 30}, {Panels: 1, File: 7 << 30, KV: 1, Activations: 5 << 30}} {
		room := func(left int64) int64 { return left - left/32 - 24<<20 - x.Activations } // for panels and cache
		b := x.Budget(true)
		if room(b) < x.Panels+x.KV || room(b-4) >= x.Panels+x.KV {
			t.Errorf("%+v: of %d the engine has %d for panels and cache", x, b, room(b))
		}
		if n := x.Budget(false); room(n) < x.File+x.KV {
			t.Errorf("%+v: %d without panels", x, n)
		}
	}
}

func TestNetworks(t *testing.T) {
	w := Network{Bytes: 1e9, Latency: 1e-6}
	if got, want := w.AllReduce(4e9, 4), 2*3*(1.0+1e-6); math.Abs(got-want) > 1e-9 {
		t.Errorf("%g s, by hand %g", got, want)
	}
	if w.AllReduce(1e9, 1) != 0 {
		t.Error("one machine has nothing to add")
	}
	m := modelOf(t, "llama-3.1-8b", "Q8_0")
	if got, want := m.Exchange(w, 10, 2), 2*32*2*(4*4096*10/2/1e9+1e-6); math.Abs(got-want) > 1e-9 {
		t.Errorf("exchange %g s, by hand %g", got, want)
	}
	if got, want := m.GradientSum(w, 2), 2*(2*8030261248/2/1e9+1e-6); math.Abs(got-want) > 1e-6 {
		t.Errorf("gradients %g s, by hand %g", got, want)
	}
}

func TestParseMachine(t *testing.T) {
	x, err := ParseMachine([]byte(`{"name":"x","sockets":2,"cores":64,"ghz":2.5,"isa":"vnni","channels":16,"mts":4800,"memory_gib":512,"peak_gops":{"bf16":10000}}`))
	if err != nil || x.Nodes != 2 || x.TheoryBandwidth() != 614.4e9 {
		t.Fatalf("%+v, %v", x, err)
	}
	if got := x.Peak(isa.VNNI, measure.Int8, 64); got != 64*2.5e9*256 {
		t.Errorf("int8 peak %g", got)
	}
	if got := x.Peak(isa.VNNI, measure.BF16, 32); got != 5e12 {
		t.Errorf("half of the given bf16 peak is %g", got)
	}
	if err := x.Complete(); err != nil {
		t.Error(err)
	}
	y, err := ParseMachine([]byte(`{"cores":4}`))
	if err != nil || y.Complete() == nil {
		t.Errorf("%+v, %v", y, err)
	}
	y.PeakGops = map[string]float64{measure.Int8: 256}
	y.ISA = "vnni"
	if err := y.Check(); err != nil {
		t.Fatal(err)
	}
	if y.FillPeaks(); y.PeakGops[measure.F32] != 64 || y.PeakGops[measure.BF16] != 128 {
		t.Errorf("peaks %v", y.PeakGops)
	}
	for _, bad := range []struct{ text, want string }{
		{``, "EOF"}, {`{`, "EOF"}, {`[]`, "cannot unmarshal"}, {`{"cores":"many"}`, "cores"}, {`{"cores":4,"coers":4}`, "coers"},
		{`{"cores":0}`, "cores"}, {`{"cores":-1}`, "cores"}, {`{"cores":1,"sockets":2}`, "sockets"}, {`{"cores":4,"sockets":2,"nodes":3}`, "evenly"},
		{`{"cores":4,"channels":2}`, "needs both"}, {`{"cores":4,"isa":"mmx"}`, "isa"}, {`{"cores":4,"ghz":1e300}`, "ghz"}, {`{"cores":4,"ghz":-1}`, "ghz"},
		{`{"cores":4,"peak_gops":{"int4":1}}`, "int4"}, {`{"cores":4,"peak_gops":{"int8":-1}}`, "no rate"}, {`{"cores":4} {}`, "behind"},
		{`{"cores":99999999}`, "cores"}, {`{"cores":4,"memory_gib":1e30}`, "memory_gib"},
	} {
		if x, err := ParseMachine([]byte(bad.text)); err == nil || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", bad.text, x, err)
		}
	}
}

// FuzzParseMachine: whatever is accepted has finite roofs.
func FuzzParseMachine(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add([]byte(`{"cores":4,"ghz":3,"isa":"avx2","channels":2,"mts":5600,"ops_per_cycle":{"f32":16}}`))
	f.Add([]byte(`{"cores":72,"sockets":2,"isa":"amx","peak_gops":{"int8":1e6},"bandwidth_gbs":500}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseMachine(b)
		if err != nil {
			return
		}
		for _, l := range []Limits{x.Limits(x.KernelTier(), x.Cores), x.Bound()} {
			for k, p := range l.Peak {
				if !(p >= 0) || math.IsInf(p, 0) || !(l.Read >= 0) || math.IsInf(l.Read, 0) {
					t.Fatalf("%s: peak %g, read %g of %s", k, p, l.Read, b)
				}
			}
		}
	})
}

// TestArenaIsReused: buffers of layers that are done are used again, with one worker (whose plan has no barriers) as with several.
func TestArenaIsReused(t *testing.T) {
	m := modelOf(t, "llama-3.2-1b", "Q8_0")
	var arena [3]int
	for workers := 1; workers <= 2; workers++ {
		p, err := m.Plan(plan.Many, workers, 512)
		if err != nil {
			t.Fatal(err)
		}
		arena[workers] = p.Arena
	}
	if ffn, logits := 4*512*8192, 4*512*128256; arena[1] > arena[2]+ffn || arena[2] > logits+8*ffn {
		t.Errorf("arenas of %d and %d bytes for one and two workers", arena[1], arena[2])
	}
}

// Every tier has its row of operations per cycle; without one a machine would have no arithmetic at all.
func TestEveryTierHasItsCycle(t *testing.T) {
	for _, tier := range isa.Tiers() {
		c, ok := cycles[tier]
		if !ok || c.Source == "" {
			t.Errorf("cycles has no row for %v (%d)", tier, tier)
		}
		for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
			if c.ops[k] <= 0 {
				t.Errorf("%v does %g operations of %s per cycle", tier, c.ops[k], k)
			}
		}
	}
}
