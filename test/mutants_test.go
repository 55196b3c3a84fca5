package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// longMutants are engines with one mistake each that shows in long contexts alone, or mostly: a line of a file, and what stands there
// instead. The tests of package pkg that are named TestLongContext… must fail for each of them.
var longMutants = []struct {
	what, file, old, new, pkg string
}{
	{"keys of positions from 512 on are stored in the page before theirs", "internal/step/attend.go",
		"kp := cache.Keys(seq, layer, h)[pos/kernel.BlockKeys]", "kp := cache.Keys(seq, layer, h)[pos/kernel.BlockKeys-min(1, pos/512)]", "./internal/walk"},
	{"values of positions from 512 on are stored in the next slot", "internal/step/attend.go",
		"vp := cache.Values(seq, layer, h)[pos/kernel.BlockKeys]",
		"vp := unsafe.Add(cache.Values(seq, layer, h)[pos/kernel.BlockKeys], -min(1, pos/512)*min(1, pos%kernel.BlockKeys)*vb/kernel.BlockKeys)", "./internal/walk"},
	{"the first of several chunks is dropped where one worker computes all", "internal/kernel/attn.go",
		"for c := first; c*ChunkKeys < hi", "for c := first + 1; c*ChunkKeys < hi", "./internal/walk"},
	{"the first of several chunks is dropped in the merge", "internal/kernel/attn.go",
		"for _, p := range parts {", "for _, p := range parts[min(1, len(parts)-1):] {", "./internal/walk"},
	{"chunks are merged in descending order", "internal/kernel/attn.go",
		"for _, p := range parts {", "for i := range parts {\n\t\t\tp := parts[len(parts)-1-i]", "./internal/walk"},
	{"chunks behind the first are taken for one", "internal/kernel/attn.go",
		"hi <= (first+1)*ChunkKeys", "hi <= (first+2)*ChunkKeys", "./internal/walk"},
	{"a merged chunk keeps its own maximum's weight", "internal/kernel/attn.go",
		"attn.Exp2(part[attn.StateMax]-m)", "attn.Exp2(0*m)", "./internal/walk"},
	{"rope is one position ahead beyond 300", "internal/kernel/elem.go",
		"math.Sincos(float64(pos) * f)", "math.Sincos(float64(pos+pos/301) * f)", "./internal/walk"},
	{"rope turns in float32", "internal/kernel/elem.go",
		"math.Sincos(float64(pos) * f)", "math.Sincos(float64(float32(pos) * float32(f)))", "./internal/walk"},
	{"the window is one key short beyond the first chunk", "internal/step/attend.go",
		"return int32(c.First(int(pos))), pos + 1", "lo = int32(c.First(int(pos)))\n\treturn lo + min(1, lo/512), pos + 1", "./internal/walk"},
	{"the window is one key long beyond the first chunk", "internal/step/attend.go",
		"return int32(c.First(int(pos))), pos + 1", "lo = int32(c.First(int(pos)))\n\treturn lo - min(1, lo/512), pos + 1", "./internal/walk"},
	{"a window's begin inside a block is not masked", "internal/kernel/attn.go",
		"whole := from <= b*BlockKeys &&", "whole := from < (b+1)*BlockKeys &&", "./internal/walk"},
	{"the first position of a chunk has no part of it", "internal/walk/walk.go",
		"n += int(pos)/kernel.ChunkKeys + 1", "n += max(1, (int(pos)+kernel.ChunkKeys-1)/kernel.ChunkKeys)", "./internal/walk"},
	{"the first chunk that a window sees is left out", "internal/step/attend.go",
		"chunk < int(l)/kernel.ChunkKeys {", "chunk <= int(l)/kernel.ChunkKeys && l > 0 {", "./internal/walk"},
	{"the tenth page of a sequence is the ninth once more", "internal/kv/kv.go",
		"s.pages[i] = append(s.pages[i], p)", "if len(s.pages[i]) == 9 {\n\t\t\t\tp = s.pages[i][8]\n\t\t\t}\n\t\t\ts.pages[i] = append(s.pages[i], p)", "./internal/walk"},
	{"tiles of a walk's rows begin anew after 512", "internal/plan/part.go",
		"r := Rect{t0 * TileRows, min(t1*TileRows, n),", "r := Rect{t0 % 16 * TileRows, min(t1%16*TileRows, n),", "./internal/walk"},
	{"the prover takes workers without chunks of one row's keys for idle", "internal/plan/check.go",
		"return Crew{c.p.Workers, rows, picks, rows * c.p.Workers, c.p.Homes}", "return Crew{c.p.Workers, rows, picks, rows, c.p.Homes}", "./internal/walk"},
	{"the engine counts positions beyond 600 one short", "internal/engine/engine.go",
		"b.Pos, b.Seq = append(b.Pos, int32(pos+i))", "b.Pos, b.Seq = append(b.Pos, int32(pos+i-(pos+i)/601))", "./test"},
	{"a sequence that goes back keeps a page too few", "internal/kv/kv.go",
		"keep, members := (n+kernel.BlockKeys-1)/kernel.BlockKeys, c.members()", "keep, members := n/512*8, c.members()", "./test"},
}

// partMutants are engines whose part function (plan/part.go), or what the walk makes of it, has one mistake each. The tests of package walk must
// fail for each of them.
var partMutants = []struct{ what, file, old, new string }{
	{"a worker's rows lack their first column", "internal/plan/part.go", "Rect{lo, hi, 0, whole.C1}", "Rect{lo, hi, min(1, lo), whole.C1}"},
	{"columns end a unit early", "internal/plan/part.go", "min(hi*t.unit, whole.C1)", "min((hi-min(1, lo))*t.unit, whole.C1)"},
	{"neighbours both have the unit between them", "internal/plan/part.go", "return n * w / workers, n * (w + 1) / workers", "return n * w / workers, min(n, n*(w+1)/workers+1)"},
	{"the last row of a head's last tile is nobody's", "internal/plan/part.go", "min(t1*TileRows, n), h * t.unit", "min(t1*TileRows, n-1), h * t.unit"},
	{"whole heads are one too many", "internal/plan/part.go", "heads = (hi - lo) / tiles", "heads = (hi-lo)/tiles + 1"},
	{"chunks of keys are one too few", "internal/plan/part.go", "Rect{0, 1, lo, hi}", "Rect{0, 1, lo, hi - min(1, lo)}"},
	{"who reads everything is taken to read its own part", "internal/plan/part.go", "case t.all:", "case t.all && t.cut.By == Split:"},
	{"the short panel at the end of a part is not claimed", "internal/walk/claim.go", "(r.C1-base+pr-1)/pr", "(r.C1-base)/pr"},
	{"who helps computes its own part once more", "internal/walk/claim.go", "it, it.Out[0], of, x.crew(wk.member))", "it, it.Out[0], w, x.crew(wk.member))"},
	{"workers of two places are taken for those of one home", "internal/plan/spread.go", "case a != b:\n\t\treturn h.top(Member)", "case a != b:\n\t\treturn h.top(Home)"},
	{"workers of two members are taken for those of one", "internal/plan/spread.go", "case a/h.Places != b/h.Places:\n\t\treturn All", "case a/h.Places != b/h.Places:\n\t\treturn h.top(Member)"},
	{"the last places of a member have a chunk too few", "internal/plan/part.go", "+ min(place, chunks%h.Places)", "+ min(place, 0*chunks)"},
	{"places compute each other's chunks", "internal/plan/part.go", "u%n*h.Places + place", "u%n*h.Places + 0*place"},
}

// TestPartMutants shows that a mistake in the part function is found.
func TestPartMutants(t *testing.T) {
	for _, m := range partMutants {
		t.Run(m.what, func(t *testing.T) {
			mustFail(t, m.file, m.old, m.new, "./internal/walk", "^Test(RandomGraphs|SeparatePlan)$", "--- FAIL: Test")
		})
	}
}

// TestLongContextMutants shows that the tests of long contexts can fail. It builds the tree once for each mistake.
func TestLongContextMutants(t *testing.T) {
	for _, m := range longMutants {
		t.Run(m.what, func(t *testing.T) {
			mustFail(t, m.file, m.old, m.new, m.pkg, "^TestLongContext(|OfAnEngine)$", "--- FAIL: TestLongContext")
		})
	}
}

// mustFail builds the tree with one line of a file altered and runs tests of a package, which must fail and say so.
func mustFail(t *testing.T, file, from, to, pkg, tests, says string) {
	t.Helper()
	if os.Getenv("CK_TEST_LARGE") == "" {
		t.Skip("builds an engine; CK_TEST_LARGE=1 runs it")
	}
	root := testkit.Root(t)
	path := filepath.Join(root, file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), from); n != 1 {
		t.Fatalf("%s has %q %d times, not once; renew this row", file, from, n)
	}
	out, err := overlaid(t, root, file, strings.Replace(string(b), from, to, 1), "test", "-short", "-count=1", "-run", tests, pkg)
	switch {
	case err == nil:
		t.Errorf("nobody noticed:\n%s", out)
	case !strings.Contains(out, says):
		t.Errorf("the mutant does not build or run:\n%s", out)
	default:
		t.Logf("%.300s", out)
	}
}
