package dot

// Layout names one of the panel layouts of the package comment.
type Layout uint8

const (
	F32 Layout = iota
	F16
	BF16
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q4_K
	Q5_K
	Q6_K
	Q2_K
	Code4
	MXFP4
	NVFP4
	Layouts // their number
)

// geometry of a layout: rows of a panel, elements along K and bytes of a group, and the multiple to which K is padded; of the
// source block, elements and bytes.
type geometry struct {
	name                         string
	rows, groupK, groupBytes, kn int
	blockK, blockBytes           int
	pack                         func(dst, src []byte, r int) // writes row r of one group from the blocks of one group
}

var geometries = [Layouts]geometry{
	F32:  {"F32", 64, 1, 256, 1, 1, 4, nil},
	F16:  {"F16", 64, 1, 128, 1, 1, 2, nil},
	BF16: {"BF16", 64, 2, 256, 32, 1, 2, nil},
	Q8_0: {"Q8_0", 16, 64, 1088, 64, 32, 34, packQ8_0},
	Q4_0: {"Q4_0", 16, 64, 576, 64, 32, 18, packQ4_0},
	Q4_1: {"Q4_1", 16, 64, 640, 64, 32, 20, packQ4_1},
	Q5_0: {"Q5_0", 16, 64, 704, 64, 32, 22, packQ5_0},
	Q5_1: {"Q5_1", 16, 64, 768, 64, 32, 24, packQ5_1},
	Q4_K: {"Q4_K", 16, 256, 2368, 256, 256, 144, packQ4_K},
	Q5_K: {"Q5_K", 16, 256, 2880, 256, 256, 176, packQ5_K},
	Q6_K: {"Q6_K", 16, 256, 3392, 256, 256, 210, packQ6_K},
	Q2_K: {"Q2_K", 16, 256, 1344, 256, 256, 84, packQ2_K},

	Code4: {"Code4", 16, 256, 2368, 256, 256, Code4Bytes, packCode4},
	MXFP4: {"MXFP4", 16, 64, 576, 64, 32, 18, packQ4_0}, // source blocks as Q4_0's, with a bfloat16 scale
	NVFP4: {"NVFP4", 16, 256, 2368, 256, 256, Code4Bytes, packCode4},
}

// Code4Bytes is the size of a source block of Code4: the scale as float32, 16 scales of 16 elements as int8, 128 bytes of indices (element
// 2i in the low nibble of byte i, 2i+1 in the high one). One of NVFP4 has scales of its form.
const Code4Bytes = 4 + 16 + 128

// String is the name of the block type that the layout holds.
func (l Layout) String() string { return geometries[l].name }

// Rows is the number of weight rows of a panel.
func (l Layout) Rows() int { return geometries[l].rows }

// GroupK is the number of elements along K of a group.
func (l Layout) GroupK() int { return geometries[l].groupK }

// GroupBytes is the size of a group.
func (l Layout) GroupBytes() int { return geometries[l].groupBytes }

// Groups is the number of groups of a panel of k elements along K.
func (l Layout) Groups(k int) int {
	g := &geometries[l]
	return (k + g.kn - 1) / g.kn * (g.kn / g.groupK)
}

// PanelBytes is the size of a panel of k elements along K.
func (l Layout) PanelBytes(k int) int { return l.Groups(k) * geometries[l].groupBytes }

// BlockK is the number of elements of a source block.
func (l Layout) BlockK() int { return geometries[l].blockK }

// RowBytes is the size of a source row (GGUF blocks) of k elements.
func (l Layout) RowBytes(k int) int {
	g := &geometries[l]
	return k / g.blockK * g.blockBytes
}

// Kernels are the functions of one layout on one tier. Every function computes what Args describes.
type Kernels struct {
	Gemv func(*Args) // one activation row × Panels panels

	// Small[r] computes r activation rows × Panels panels straight from the packed form; entries 0 and 1 are nil. Its length
	// is one more than the most rows; nil: none.
	Small []func(*Args)
	Few   int // the most rows that are faster this way, in several turns if need be; 0: as many as Small has

	Sliced  bool // Gemv and Small heed Args.Slices: the slices' outputs are 16 apart
	Streams bool // Gemv and Small heed Args.End, Next and NextLen, not Pf
	Folds   bool // Gemm heeds Args.Slices and adds the slices as the tree of GoFold; it heeds Bias and Add, and prefetches from Src on

	// Gemm[r] computes r activation rows × one tile of Tile (1 or 2) panels; the second panel lies WFar behind the first, its
	// outputs YFar behind. Entry 0 is nil; the length is one more than the most rows. If Unpack is not nil the panels must
	// have been unpacked.
	Gemm []func(*Args)
	Tile int

	// Unpack expands Groups groups at Src to groups of UnpackedBytes bytes at Dst: one byte per weight in the order of Q8_0's
	// vectors (K-quants: 64 vectors, sub-block by sub-block), then the group's scales as they are. The byte is the unsigned weight; for
	// Code4, NVFP4 and Q2_K it is what Gemm of the same set wants: values with a bias of its own, weights times their scale.
	Unpack        func(*Args)
	UnpackedBytes int
}

// Set is the kernels of one tier; layouts without kernels of their own have a nil Gemv.
type Set struct{ Of [Layouts]Kernels }
