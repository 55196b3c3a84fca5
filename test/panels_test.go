package test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
)

// writePanels writes the panels of a model into a new folder.
func writePanels(t *testing.T, m *gguf.Model) string {
	t.Helper()
	p, pack, err := engine.PlanPanels(m, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.panels")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(p.Write(context.Background(), w, 2, pack, nil), w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// Mapped panels give the bits of packed ones: on every tier with assembly, for any number of threads, for every
// type that has panels, for folders whose rows lie in another order, for experts and for parts of fused tensors.
func TestPanelsGiveTheSameBits(t *testing.T) {
	check := func(name string, m *gguf.Model, ids []int32) {
		path := writePanels(t, m)
		for _, tier := range tiers(t) {
			if tier == isa.Go {
				continue
			}
			want := logits(t, m, engine.Options{Tier: tier.String(), Threads: 2}, ids)
			for threads := 1; threads <= 3; threads++ {
				opt := engine.Options{Tier: tier.String(), Threads: threads, UBatch: 6 - threads, Panels: path}
				if err := sameBits(want, logits(t, m, opt, ids)); err != nil {
					t.Errorf("%s, tier %s, %d threads: %v", name, tier, threads, err)
				}
			}
			e, err := engine.Open(m, engine.Options{Tier: tier.String(), Threads: 1, Panels: path})
			if err != nil {
				t.Fatal(err)
			}
			if e.MappedBytes() == 0 || len(e.Warnings) > 0 {
				t.Errorf("%s, tier %s: %d bytes are mapped, %q", name, tier, e.MappedBytes(), e.Warnings)
			}
			e.Close()
		}
	}
	for _, name := range []string{"llama-bias", "stories260K", "trained-qwen3", "mistral-window-hf", "phi3", "gemma4-moe", "gpt-oss", "qwen3moe"} {
		c := testkit.LoadCase(t, name)
		for form, m := range forms(t, c) {
			check(name+" "+form, m, c.Sequences[0].IDs)
		}
	}
	c := testkit.LoadCase(t, "kq-llama")
	files, err := filepath.Glob(filepath.Join(c.Dir, "*.gguf"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files of quantized models, %v", len(files), err)
	}
	for _, path := range files {
		m, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		check(filepath.Base(path), m, c.Sequences[0].IDs)
	}
}

// resident is what of the mapping of a file is in memory, in bytes.
func resident(t *testing.T, path string) (n int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	here := false
	for in := bufio.NewScanner(f); in.Scan(); {
		words := strings.Fields(in.Text())
		if !strings.HasSuffix(words[0], ":") {
			here = words[len(words)-1] == path
		}
		if here && words[0] == "Rss:" {
			kib, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += kib << 10
		}
	}
	return n
}

// With mapped panels the matrices of the model's file are not touched: what is resident of it are the neighbours of
// its header, norms and embeddings.
func TestPanelsLeaveTheFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	s := synth.Shape{Arch: "llama", Layers: 6, Hidden: 512, FFN: 2048, Heads: 8, KVHeads: 8, HeadDim: 64,
		Vocab: 1000, Context: 256, RopeBase: 1e4}
	if err := errors.Join(synth.Write(w, "small", s, quant.Q8_0, 3), w.Flush()); err != nil {
		t.Fatal(err)
	}
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	size, file := m.SizeBytes(), writePanels(t, m)
	m.Close()
	for _, panels := range []string{"", file} {
		// What was just written is cached in large pieces, and one fault would map 2 MiB of it.
		if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
		if m, err = gguf.Open(path); err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(m, engine.Options{Threads: 2, Panels: panels})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			each := func(int, []float32) error { return nil }
			err := e.Forward(context.Background(), e.NewSeq(), []int32{1, 2, 3}, engine.All, each)
			if err != nil {
				t.Fatal(err)
			}
		}
		ofModel, ofPanels := resident(t, path), resident(t, file)
		t.Logf("panels %q: %d of %d KiB of the model are resident, %d KiB of the panels", panels, ofModel>>10,
			size>>10, ofPanels>>10)
		if touched := ofModel > size*8/10; touched != (panels == "") || ofModel > size/4 && !touched ||
			(ofPanels > size*8/10) != (panels != "") {
			t.Errorf("panels %q: %d of %d KiB of the model are resident, %d KiB of the panels", panels,
				ofModel>>10, size>>10, ofPanels>>10)
		}
		e.Close()
		m.Close()
	}
}
