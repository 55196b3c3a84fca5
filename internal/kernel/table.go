package kernel

import (
	"fmt"
	"sync"

	"ck/asm/dot"
	"ck/internal/isa"
	"ck/internal/quant"
)

// Table holds the functions of one ISA tier.
type Table struct {
	Tier isa.Tier
	ElemTable
	AttnTable
	formats [2][quant.Types]Format // [--act f32][type]; the zero Format for unknown types
	noPf    bool
}

// Format is how a matmul reads weights of one type: the form of its activations, the panels, the kernels.
type Format struct {
	Type quant.Type
	Act  ActKind
	Sums Sums // of the activations that matmuls read

	PanelRows  int // weight rows of a panel
	GroupK     int // elements along K of a group; slices of K are whole groups
	GroupBytes int // bytes of a group; 0 if Direct

	// Direct: there are no panels; Matmul reads file rows (Matmul.Row), decodes them to float32 in its scratch and multiplies
	// those.
	Direct bool

	layout  dot.Layout
	version int // of the bytes that Pack makes
	kernels dot.Kernels
	packer  dot.Packer
	recode  func(t quant.Type, dst, src []byte) // makes source blocks of layout of the file's, exactly; nil: they are the same
	values  *[16]int8                           // of Code4, MXFP4, NVFP4
	fold    func(*dot.Args)
	ahead   int // bytes that kernels prefetch ahead, if they do not stream
}

// For is the table of tier t on a machine with features f, which must allow the tier (isa.Check). Tables are made once at start.
func For(t isa.Tier, f isa.Features) *Table {
	r := routinesOf(t, f)
	tab := &Table{Tier: t, ElemTable: ElemTable{r.elem}, AttnTable: AttnTable{r.attn, r.elem}}
	for act := range tab.formats {
		for i := range tab.formats[act] {
			if qt := quant.Type(i); qt.Known() {
				tab.formats[act][i] = makeFormat(qt, ActFor(qt, act == 1), &r)
			}
		}
	}
	return tab
}

// WithoutPrefetch is t with prefetch distances of zero in all kernels that are told one, and streams of one line: the same instructions fetch what is
// read anyway. Kernels with a distance of their own keep it: packing, and the AVX2 and AVX-VNNI kernels for many rows, which fetch the
// next panel. Formats are the same and may be those of t; what matters is whose scratch they are called with.
func (t *Table) WithoutPrefetch() *Table {
	c := *t
	c.noPf = true
	return &c
}

// NewScratch and NewAttnScratch are empty scratches for kernels of t.
func (t *Table) NewScratch() *Scratch {
	s := NewScratch()
	if t.noPf {
		s.noPf = -1
	}
	return s
}

func (t *Table) NewAttnScratch() *AttnScratch { return &AttnScratch{noPf: t.noPf} }

// layouts are the types with panels of their own and the form of activations that their kernels read. Files hold
// panels: whoever changes a byte that Pack makes of a type's rows raises the row's version, so that older files are
// refused.
var layouts = map[quant.Type]struct {
	layout  dot.Layout
	act     ActKind
	version int
}{
	quant.F32:  {dot.F32, ActF32, 1},
	quant.F16:  {dot.F16, ActF32, 1},
	quant.BF16: {dot.BF16, ActBF16, 1},
	quant.Q8_0: {dot.Q8_0, ActQ8, 1},
	quant.Q4_0: {dot.Q4_0, ActQ8, 1},
	quant.Q4_1: {dot.Q4_1, ActQ8, 1},
	quant.Q5_0: {dot.Q5_0, ActQ8, 1},
	quant.Q5_1: {dot.Q5_1, ActQ8, 1},
	quant.Q4_K: {dot.Q4_K, ActQ8K, 1},
	quant.Q5_K: {dot.Q5_K, ActQ8K, 1},
	quant.Q6_K: {dot.Q6_K, ActQ8K, 1},
	quant.Q2_K: {dot.Q2_K, ActQ8K, 1},

	// Types whose blocks are rewritten.
	quant.MXFP4:   {dot.MXFP4, ActQ8, 1},
	quant.NVFP4:   {dot.NVFP4, ActQ8K, 1},
	quant.IQ4_NL:  {dot.Q8_0, ActQ8, 1},
	quant.Q1_0:    {dot.Q8_0, ActQ8, 1},
	quant.Q2_0:    {dot.Q8_0, ActQ8, 1},
	quant.Q3_K:    {dot.Code4, ActQ8K, 1},
	quant.IQ1_S:   {dot.Code4, ActQ8K, 1},
	quant.IQ1_M:   {dot.Code4, ActQ8K, 1},
	quant.IQ2_XXS: {dot.Code4, ActQ8K, 1},
	quant.IQ2_XS:  {dot.Code4, ActQ8K, 1},
	quant.IQ2_S:   {dot.Code4, ActQ8K, 1},
	quant.IQ3_XXS: {dot.Code4, ActQ8K, 1},
	quant.IQ3_S:   {dot.Code4, ActQ8K, 1},
	quant.IQ4_XS:  {dot.Code4, ActQ8K, 1},
	quant.TQ1_0:   {dot.Code4, ActQ8K, 1},
	quant.TQ2_0:   {dot.Code4, ActQ8K, 1},
}

// sums are what kernels of integer layouts read of activations beside scales and elements.
var sums = map[dot.Layout]Sums{dot.Q8_0: Sum128, dot.Q4_0: Sum8, dot.Q5_0: Sum16, dot.MXFP4: Sum16, dot.Q4_1: SumD, dot.Q5_1: SumD,
	dot.Q6_K: Sum32, dot.Q2_K: Sum32, dot.Code4: Sum32, dot.NVFP4: Sum32, dot.Q4_K: SumP, dot.Q5_K: SumP}

// recodeElems is how many elements of a row are rewritten at a time: whole blocks of every type, whole groups of every layout; one to two
// KiB of the file in a row, so that the memory's prefetchers see 16 streams, and 16 rows of the result stay in the second-level cache.
const recodeElems = 2048

// recoded holds rewritten blocks of 16 rows.
var recoded = sync.Pool{New: func() any { return new([16][recodeElems / 32 * 34]byte) }}

func makeFormat(t quant.Type, act ActKind, r *routines) Format {
	f := Format{Type: t, Act: act, layout: dot.F32, Direct: true, packer: r.pack, fold: r.fold}
	if l, ok := layouts[t]; ok && l.act == act {
		f.layout, f.version, f.Direct, f.Sums = l.layout, l.version, false, sums[l.layout]
		switch {
		case l.layout == dot.Code4:
			f.recode, f.values = quant.Codes, quant.CodeValues(t)
		case l.layout == dot.MXFP4:
			f.recode, f.values = quant.FP4Blocks, quant.FP4Values()
		case l.layout == dot.NVFP4:
			f.recode, f.values = quant.FP4Codes, quant.FP4Values()
		case l.layout == dot.Q8_0 && t != quant.Q8_0:
			f.recode = quant.ToQ8_0
		}
	}
	f.kernels = r.dot[f.layout]
	f.ahead = r.ahead[f.layout]
	f.PanelRows, f.GroupK, f.GroupBytes = f.layout.Rows(), f.layout.GroupK(), f.layout.GroupBytes()
	if f.layout == dot.BF16 {
		f.GroupK, f.GroupBytes = 32, 16*f.GroupBytes // K is padded to 32
	}
	if f.Direct {
		f.GroupK, f.GroupBytes = t.BlockElems(), 0
	}
	return f
}

// Format is how matmuls read weights of type w; f32 is --act f32. It panics for types that quant does not know.
func (t *Table) Format(w quant.Type, f32 bool) *Format {
	if !w.Known() {
		panic(fmt.Sprintf("kernel: %v is unknown", w))
	}
	if f32 {
		return &t.formats[1][w]
	}
	return &t.formats[0][w]
}

// Plain is how matmuls read weights of float32 with activations of float32.
func (t *Table) Plain() *Format { return t.Format(quant.F32, true) }

// Layout names the layout of the panels and the version of their bytes, which are the same on every tier; "" if
// Direct.
func (f *Format) Layout() (name string, version int) {
	if f.Direct {
		return "", 0
	}
	return f.layout.String(), f.version
}

// PanelBytes is the size of a panel of k elements along K; 0 if Direct.
func (f *Format) PanelBytes(k int) int {
	if f.Direct {
		return 0
	}
	return f.layout.PanelBytes(k)
}

// Pack makes one panel of k elements along K: row(r) is the file's bytes of its row r, 0 <= r < rows <= PanelRows, or nil for a
// row of zeros. dst is PanelBytes(k) long. It panics if Direct.
func (f *Format) Pack(dst []byte, k, rows int, row func(r int) []byte) {
	if f.Direct {
		panic(fmt.Sprintf("kernel: %v has no panels", f.Type))
	}
	if f.recode == nil {
		f.layout.Pack(f.packer, dst, k, rows, row)
		return
	}
	buf := recoded.Get().(*[16][recodeElems / 32 * 34]byte)
	defer recoded.Put(buf)
	for e := 0; e < k; e += recodeElems {
		n := min(recodeElems, k-e)
		from, size := f.Type.RowBytes(e), f.Type.RowBytes(n)
		whole := (n + f.layout.BlockK() - 1) / f.layout.BlockK() * f.layout.BlockK() // NVFP4's blocks are smaller than its layout's
		f.layout.Pack(f.packer, dst[f.layout.PanelBytes(e):][:f.layout.PanelBytes(n)], whole, rows, func(r int) []byte {
			src := row(r)
			if src == nil {
				return nil
			}
			to := buf[r][:f.layout.RowBytes(whole)]
			f.recode(f.Type, to, src[from:][:size])
			return to
		})
	}
}
