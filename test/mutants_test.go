package test

import (
	"encoding/json"
	"os"
	"os/exec"
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
	{"keys of positions from 512 on are stored in the page before theirs", "internal/walk/walk.go",
		"kp := x.cache.Keys(seq, it.Cache, h)[pos/kv.Block]", "kp := x.cache.Keys(seq, it.Cache, h)[pos/kv.Block-min(1, pos/512)]", "./internal/walk"},
	{"values of positions from 512 on are stored in the next slot", "internal/walk/walk.go",
		"vp := x.cache.Values(seq, it.Cache, h)[pos/kv.Block]",
		"vp := unsafe.Add(x.cache.Values(seq, it.Cache, h)[pos/kv.Block], -min(1, pos/512)*min(1, pos%kv.Block)*vb/kv.Block)", "./internal/walk"},
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
	{"the window is one key short beyond the first chunk", "internal/walk/walk.go",
		"lo = hi - int32(window)", "lo = hi - int32(window) + min(1, (hi-int32(window))/512)", "./internal/walk"},
	{"the window is one key long beyond the first chunk", "internal/walk/walk.go",
		"lo = hi - int32(window)", "lo = hi - int32(window) - min(1, (hi-int32(window))/512)", "./internal/walk"},
	{"a window's begin inside a block is not masked", "internal/kernel/attn.go",
		"whole := from <= b*BlockKeys &&", "whole := from < (b+1)*BlockKeys &&", "./internal/walk"},
	{"the first position of a chunk has no part of it", "internal/walk/walk.go",
		"n += int(pos)/chunkKeys + 1", "n += max(1, (int(pos)+chunkKeys-1)/chunkKeys)", "./internal/walk"},
	{"the first chunk that a window sees is left out", "internal/walk/walk.go",
		"chunk < int(l)/chunkKeys {", "chunk <= int(l)/chunkKeys && l > 0 {", "./internal/walk"},
	{"the tenth page of a sequence is the ninth once more", "internal/kv/kv.go",
		"s.pages[i] = append(s.pages[i], p)", "if len(s.pages[i]) == 9 {\n\t\t\t\tp = s.pages[i][8]\n\t\t\t}\n\t\t\ts.pages[i] = append(s.pages[i], p)", "./internal/walk"},
	{"tiles of a walk's rows begin anew after 512", "internal/walk/walk.go",
		"h, t := u/tiles, u%tiles", "h, t := u/tiles, u%tiles%16", "./internal/walk"},
	{"the engine counts positions beyond 600 one short", "internal/engine/engine.go",
		"b.Pos, b.Seq = append(b.Pos, int32(pos+i))", "b.Pos, b.Seq = append(b.Pos, int32(pos+i-(pos+i)/601))", "./test"},
	{"a sequence that goes back keeps a page too few", "internal/kv/kv.go",
		"keep := (n + Block - 1) / Block", "keep := n / 512 * 8", "./test"},
}

// TestLongContextMutants shows that the tests of long contexts can fail. It builds the tree once for each mistake.
func TestLongContextMutants(t *testing.T) {
	if os.Getenv("CK_TEST_LARGE") == "" {
		t.Skip("builds many engines; CK_TEST_LARGE=1 runs it")
	}
	root := testkit.Root(t)
	for _, m := range longMutants {
		t.Run(m.what, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), m.old); n != 1 {
				t.Fatalf("%s has %q %d times, not once; renew this row", m.file, m.old, n)
			}
			dir := t.TempDir()
			mutant, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
			j, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{mutant: []byte(strings.Replace(string(b), m.old, m.new, 1)), overlay: j} {
				if err := os.WriteFile(name, data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("go", "test", "-short", "-count=1", "-overlay", overlay, "-run", "^TestLongContext(|OfAnEngine)$", m.pkg)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("nobody noticed:\n%s", out)
			case !strings.Contains(string(out), "--- FAIL: TestLongContext"):
				t.Errorf("the mutant does not build or run:\n%s", out)
			default:
				t.Logf("%.300s", out)
			}
		})
	}
}
