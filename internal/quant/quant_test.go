package quant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// reference is one type of the reference data (quant-ref/index.json): bytes that ggml wrote and the floats it read
// back.
type reference struct {
	ID            Type
	Name          string
	BlockElements int   `json:"block_elements"`
	BlockBytes    int   `json:"block_bytes"`
	Plain         files `json:"plain"`
	WithImatrix   files `json:"with_imatrix"`
}

type files struct{ Bytes, Dequantized string }

// references reads the index of the reference data and names its folder.
func references(t testing.TB) (dir string, refs []reference) {
	t.Helper()
	dir = testkit.Data(t, "quant-ref")
	var index struct{ Types []reference }
	if err := json.Unmarshal(read(t, dir, "index.json"), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Types) < 29 {
		t.Fatalf("index.json has %d types, at least 29 expected", len(index.Types))
	}
	return dir, index.Types
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readF32(t testing.TB, dir, name string) []float32 {
	t.Helper()
	b := read(t, dir, name)
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

// TestDecodeReference decodes ggml's bytes of every type, placed against guard pages, and wants ggml's floats, bit
// for bit.
func TestDecodeReference(t *testing.T) {
	dir, refs := references(t)
	decoded := 0
	for _, r := range refs {
		for _, f := range []files{r.Plain, r.WithImatrix} {
			if f.Dequantized == "" {
				continue
			}
			decoded++
			t.Run(f.Bytes, func(t *testing.T) {
				if r.ID.BlockElems() != r.BlockElements || r.ID.BlockBytes() != r.BlockBytes {
					t.Fatalf("block of %d elements in %d bytes, want %d in %d",
						r.ID.BlockElems(), r.ID.BlockBytes(), r.BlockElements, r.BlockBytes)
				}
				want, b := readF32(t, dir, f.Dequantized), read(t, dir, f.Bytes)
				src, dst := testkit.Guarded[byte](t, len(b)), testkit.Guarded[float32](t, len(want))
				copy(src, b)
				Decode(r.ID, dst, src)
				for i := range want {
					if math.Float32bits(dst[i]) != math.Float32bits(want[i]) {
						t.Fatalf("element %d is %g, want %g", i, dst[i], want[i])
					}
				}
				wide := make([]float64, len(want))
				Exact(r.ID, wide, src)
				for i := range want {
					if wide[i] != float64(want[i]) {
						t.Fatalf("Exact: element %d is %g, want %g", i, wide[i], want[i])
					}
				}
			})
		}
	}
	if decoded < 43 {
		t.Errorf("%d files decoded, at least 43 expected", decoded)
	}
}

// TestGrids compares the unpacked grids with the SHA-256 of ggml's tables (ggml-common.h), taken over their
// little-endian bytes.
func TestGrids(t *testing.T) {
	sum := func(write func(h hash.Hash)) string {
		h := sha256.New()
		write(h)
		return hex.EncodeToString(h.Sum(nil))
	}
	for _, c := range []struct{ name, got, want string }{
		{"iq1s_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ1()) }),
			"07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"},
		{"iq2xxs_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ2XXS()) }),
			"05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"},
		{"iq2xs_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ2XS()) }),
			"06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"},
		{"iq2s_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ2S()) }),
			"e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"},
		{"iq3xxs_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ3XXS()) }),
			"46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"},
		{"iq3s_grid", sum(func(h hash.Hash) { binary.Write(h, binary.LittleEndian, gridIQ3S()) }),
			"bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"},
	} {
		if c.got != c.want {
			t.Errorf("%s: SHA-256 is %s, want %s", c.name, c.got, c.want)
		}
	}
}

// TestScaleCodes checks every code of the 8-bit scales against their definitions.
func TestScaleCodes(t *testing.T) {
	for c := range 256 {
		if got, want := float64(e8m0Half(byte(c))), math.Ldexp(1, c-128); got != want {
			t.Errorf("E8M0 %#x: half is %g, want %g", c, got, want)
		}
		exp, man := c>>3&15, float64(c&7)
		want := math.Ldexp(1+man/8, exp-7) / 2
		switch {
		case c == 0x7f:
			want = 0
		case exp == 0:
			want = math.Ldexp(man, -9) / 2
		}
		if got := float64(ue4m3Half(byte(c))); got != want {
			t.Errorf("UE4M3 %#x: half is %g, want %g", c, got, want)
		}
	}
}

func known() (all []Type) {
	for t := range Type(len(table)) {
		if t.Known() {
			all = append(all, t)
		}
	}
	return all
}

func TestTypes(t *testing.T) {
	if n := len(known()); n != 35 {
		t.Errorf("%d types are known, want 35", n)
	}
	for _, typ := range known() {
		for _, name := range []string{typ.String(), strings.ToLower(typ.String())} {
			if got, ok := Parse(name); !ok || got != typ {
				t.Errorf("Parse(%q) is %v, %v", name, got, ok)
			}
		}
		if 1024%typ.BlockElems() != 0 {
			t.Errorf("%v: Exact's buffer is not a multiple of %d elements", typ, typ.BlockElems())
		}
	}
	for _, typ := range []Type{4, 5, 31, 36, 43, 1 << 31, math.MaxUint32} {
		if typ.Known() || typ.BlockElems() != 0 || typ.BlockBytes() != 0 || !strings.HasPrefix(typ.String(),
			"type ") {
			t.Errorf("type number %d is known as %v", uint32(typ), typ)
		}
	}
	for _, name := range []string{"", "Q4", "Q4_K_M", "type 4"} {
		if typ, ok := Parse(name); ok {
			t.Errorf("Parse(%q) is %v", name, typ)
		}
	}
}

// TestWrongSizes wants a panic, before anything is written, of calls whose sizes do not fit.
func TestWrongSizes(t *testing.T) {
	for name, call := range map[string]func(){
		"unknown type":          func() { Decode(4, nil, nil) },
		"part of a block":       func() { Decode(Q4_K, make([]float32, 128), make([]byte, 144)) },
		"source too short":      func() { Decode(Q8_0, make([]float32, 64), make([]byte, 67)) },
		"Exact, too short":      func() { Exact(Q8_0, make([]float64, 64), make([]byte, 67)) },
		"Quantize, too short":   func() { Quantize(Q8_0, make([]byte, 67), make([]float32, 64), nil) },
		"Quantize, part":        func() { Quantize(Q8_0, make([]byte, 68), make([]float32, 63), nil) },
		"RandomBlocks, part":    func() { RandomBlocks(Q8_0, make([]byte, 35), rand.New(rand.NewPCG(1, 1)), 1) },
		"RandomBlocks, unknown": func() { RandomBlocks(4, nil, rand.New(rand.NewPCG(1, 1)), 1) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "quant: ") {
					t.Errorf("%s: no panic of this package", name)
				}
			}()
			call()
		}()
	}
}

// TestRandomBlocks checks deviation, mean, determinism and the codes that quantizers never write.
func TestRandomBlocks(t *testing.T) {
	const n = 1 << 17
	for _, typ := range known() {
		for _, sigma := range []float32{0.02, 1} {
			b := testkit.Guarded[byte](t, typ.RowBytes(n))
			RandomBlocks(typ, b, rand.New(rand.NewPCG(3, 4)), sigma)
			again := make([]byte, len(b))
			RandomBlocks(typ, again, rand.New(rand.NewPCG(3, 4)), sigma)
			if !bytes.Equal(b, again) {
				t.Errorf("%v: not the same bytes from the same seed", typ)
			}
			switch typ {
			case I8, I16, I32, I64:
				continue
			}
			x := make([]float64, n)
			Exact(typ, x, b)
			var sum, squares float64
			for _, v := range x {
				sum += v
				squares += v * v
			}
			mean, rms := sum/n/float64(sigma), math.Sqrt(squares/n)/float64(sigma)
			tol := 0.05
			if typ == MXFP4 || typ == NVFP4 {
				tol = 0.35 // coarse scales
			}
			if math.Abs(rms-1) > tol {
				t.Errorf("%v: deviation is %.3f of sigma %g", typ, rms, sigma)
			}
			if math.Abs(mean) > 0.05 {
				t.Errorf("%v: mean is %.3f of sigma %g", typ, mean, sigma)
			}
		}
	}
}

func TestRandomBlocksCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, Q8_0.BlockBytes()*1000)
	RandomBlocks(Q8_0, b, rng, 1)
	var seen [256]int
	for i := range b {
		if i%34 >= 2 {
			seen[b[i]]++
		}
	}
	for c, n := range seen {
		if n == 0 != (c == 0x80) {
			t.Errorf("Q8_0: code %#x occurs %d times", c, n)
		}
	}
	b = make([]byte, Q8_K.BlockBytes())
	RandomBlocks(Q8_K, b, rng, 1)
	for g := range 16 {
		sum := 0
		for _, q := range b[4+16*g:][:16] {
			sum += int(int8(q))
		}
		if got := int(int16(binary.LittleEndian.Uint16(b[260+2*g:]))); got != sum {
			t.Errorf("Q8_K: sum of group %d is %d, want %d", g, got, sum)
		}
	}
	b = make([]byte, TQ2_0.BlockBytes())
	RandomBlocks(TQ2_0, b, rng, 1)
	for _, q := range b[:64] {
		if q&(q>>1)&0x55 != 0 {
			t.Errorf("TQ2_0: byte %#x has code 3", q)
		}
	}
}

// TestAllocs wants no allocation by the functions of the hot paths, once the grids are unpacked.
func TestAllocs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	dst, ones := make([]float32, 1024), slices.Repeat([]float32{1}, 1024)
	for _, typ := range known() {
		b := make([]byte, typ.RowBytes(1024))
		RandomBlocks(typ, b, rng, 1)
		if n := testing.AllocsPerRun(10, func() { Decode(typ, dst, b) }); n != 0 {
			t.Errorf("%v: decoding allocates %g times", typ, n)
		}
		if typ.row().quantize == nil {
			continue
		}
		gaussian(dst, rng, 1)
		if n := testing.AllocsPerRun(10, func() { Quantize(typ, b, dst, nil) }); n != 0 &&
			typ.row().imatrix != needsImatrix {
			t.Errorf("%v: Quantize allocates %g times", typ, n)
		}
		if n := testing.AllocsPerRun(10, func() { Quantize(typ, b, dst, ones[:512]) }); n != 0 {
			t.Errorf("%v: Quantize with an imatrix allocates %g times", typ, n)
		}
	}
}

// FuzzDecode decodes arbitrary bytes as every type, placed against guard pages.
func FuzzDecode(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add(uint32(Q4_K), bytes.Repeat([]byte{0xff}, 144))
	f.Add(uint32(IQ1_M), bytes.Repeat([]byte{0x7c}, 56))
	f.Add(uint32(TQ1_0), bytes.Repeat([]byte{0xf7}, 108))
	f.Add(uint32(NVFP4), bytes.Repeat([]byte{0x80}, 36))
	f.Fuzz(func(t *testing.T, n uint32, b []byte) {
		all := known()
		typ := all[n%uint32(len(all))]
		blocks := min(len(b)/typ.BlockBytes(), 8)
		src := testkit.Guarded[byte](t, blocks*typ.BlockBytes())
		copy(src, b)
		dst := testkit.Guarded[float32](t, blocks*typ.BlockElems())
		wide := make([]float64, len(dst))
		Decode(typ, dst, src)
		Exact(typ, wide, src)
		for i, v := range dst {
			if w := wide[i]; w != float64(v) && !(w != w && v != v) {
				t.Fatalf("%v: element %d is %g, but %g in float64", typ, i, v, w)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, typ := range known() {
		b.Run("type="+typ.String(), func(b *testing.B) {
			src, dst := make([]byte, typ.RowBytes(1<<14)), make([]float32, 1<<14)
			RandomBlocks(typ, src, rand.New(rand.NewPCG(1, 2)), 1)
			b.SetBytes(4 << 14) // of output
			for b.Loop() {
				Decode(typ, dst, src)
			}
		})
	}
}

func BenchmarkRandomBlocks(b *testing.B) {
	for _, typ := range known() {
		b.Run("type="+typ.String(), func(b *testing.B) {
			dst, rng := make([]byte, typ.RowBytes(1<<14)), rand.New(rand.NewPCG(1, 2))
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				RandomBlocks(typ, dst, rng, 1)
			}
		})
	}
}
