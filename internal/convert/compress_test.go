package convert

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ck/internal/gguf"
	"ck/internal/isa"
)

// A compressed output has the rows of a plain one, for any number of workers the same bytes, and converts back to the
// plain file.
func TestCompress(t *testing.T) {
	m := source(t)
	for _, recipe := range []string{"Q4_K_M", "BF16", "Q8_0"} {
		dir := t.TempDir()
		plain := planOf(t, m, recipe, Output{Path: filepath.Join(dir, "plain.gguf")})
		if _, err := plain.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2}); err != nil {
			t.Fatal(err)
		}
		hash := ""
		for workers := 1; workers <= 5; workers += 2 {
			p := planOf(t, m, recipe, Output{Path: filepath.Join(dir, fmt.Sprint(workers)), Compress: true})
			most := p.Size()
			res, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			if st, err := os.Stat(p.Parts[0].Path); err != nil || st.Size() != res.Bytes || res.Bytes >= most {
				t.Errorf("%s: %v, %d bytes said, at most %d before", recipe, err, res.Bytes, most)
			}
			same(t, p.Parts[0].Path, p)
			if got := sum(t, p.Parts[0].Path); hash == "" {
				hash = got
			} else if got != hash {
				t.Errorf("%s: %d workers make another file", recipe, workers)
			}
		}
		checkSums(t, filepath.Join(dir, "1"))
		z, err := gguf.Open(filepath.Join(dir, "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		back, err := NewPlan(z, z.KV, own(z), Output{Path: filepath.Join(dir, "back.gguf")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := back.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2}); err != nil {
			t.Fatal(err)
		}
		if sum(t, back.Parts[0].Path) != sum(t, plain.Parts[0].Path) {
			t.Errorf("%s: converted back it is not the plain file", recipe)
		}
	}
}

// own keeps all tensors as they are.
func own(m *gguf.Model) (tensors []Tensor) {
	for i, typ := range OwnTypes(m) {
		tensors = append(tensors, Tensor{From: m.Tensors[i], Type: typ})
	}
	return tensors
}

// checkSums holds the sums of parts against the tensors.
func checkSums(t *testing.T, path string) {
	t.Helper()
	sums, err := PartSums(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before, after := int64(0), int64(0)
	for _, x := range m.Tensors {
		if x.Stored != nil {
			before, after = before+x.Bytes(), after+x.Stored.Size()
		}
	}
	for _, s := range sums {
		before, after = before-s.Before, after-s.After
	}
	if before != 0 || after != 0 {
		t.Errorf("%s: the parts lack %d bytes before and %d after", path, before, after)
	}
}

// A compressed output that was stopped, and whose journal lost its end, becomes the same file.
func TestCompressResume(t *testing.T) {
	m := source(t)
	whole := planOf(t, m, "Q8_0", Output{Path: filepath.Join(t.TempDir(), "out.gguf"), Compress: true})
	if _, err := whole.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2}); err != nil {
		t.Fatal(err)
	}
	hash := sum(t, whole.Parts[0].Path)
	rng := rand.New(rand.NewPCG(1, 2))
	resumed, again := 0, 0
	for n := range 24 {
		path := filepath.Join(t.TempDir(), "out.gguf")
		for round := 0; !exists(path); round++ {
			p := planOf(t, m, "Q8_0", Output{Path: path, Compress: true})
			ctx, cancel := context.WithCancelCause(context.Background())
			var chunks atomic.Int64
			stop := int64(1 + (n+round*7)%24)
			res, err := p.Write(ctx, Options{Features: isa.Detect(), Workers: 1 + n%3, Resume: true, Progress: func(Progress) {
				if chunks.Add(1) == stop && round < 3 {
					cancel(errors.New("stopped"))
				}
			}})
			if res != nil {
				resumed, again = resumed+res.Resumed, again+res.Again
			}
			if err == nil {
				break
			}
			if err.Error() != "stopped" || exists(path) {
				t.Fatalf("%v; OUT is there: %v", err, exists(path))
			}
			loseCompressed(t, rng, p)
		}
		if got := sum(t, path); got != hash {
			t.Fatalf("run %d: another file", n)
		}
	}
	if resumed < 60 || again == 0 {
		t.Errorf("%d tensors were taken over in all, %d made again", resumed, again)
	}
}

// loseCompressed cuts the journal within its last line, and now and then flips a bit of what was written.
func loseCompressed(t *testing.T, rng *rand.Rand, p *Plan) {
	t.Helper()
	b, err := os.ReadFile(p.journalPath())
	if err != nil {
		t.Fatal(err)
	}
	last := strings.LastIndexByte(string(b[:len(b)-1]), '\n') + 1
	if err := os.WriteFile(p.journalPath(), b[:last+rng.IntN(len(b)-last+1)], 0o666); err != nil {
		t.Fatal(err)
	}
	part := p.Parts[0].partPath()
	if b, err = os.ReadFile(part); err != nil {
		t.Fatal(err)
	}
	if len(b) > 100000 && rng.IntN(3) == 0 {
		b[len(p.Parts[0].Header.Bytes)+rng.IntN(len(b)/2)] ^= 1
		if err := os.WriteFile(part, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// A value that cannot be written ends all workers, those that wait for their turn too.
func TestCompressFails(t *testing.T) {
	m := source(t)
	bad := m.Tensor("blk.0.attn_v.weight")
	for i := range 4 {
		bad.Data[4*100+i] = 0xff
	}
	p := planOf(t, m, "Q8_0", Output{Path: filepath.Join(t.TempDir(), "out.gguf"), Compress: true})
	_, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: 4})
	if !errors.As(err, new(*ValueError)) {
		t.Errorf("%v, expected the value", err)
	}
	if exists(p.Parts[0].partPath()) || exists(p.journalPath()) {
		t.Error("something stays of an output that cannot be")
	}
}

// A damaged source is an error that names the rows.
func TestCompressedSourceDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "z.gguf")
	p := planOf(t, source(t), "BF16", Output{Path: path, Compress: true})
	if _, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	z, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	back, err := NewPlan(z, z.KV, own(z), Output{Path: path + ".back"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = back.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2})
	if !errors.As(err, new(*gguf.DamageError)) {
		t.Errorf("%v, expected damage", err)
	}
}

// Parts are refused.
func TestCompressParts(t *testing.T) {
	m := source(t)
	if _, err := NewPlan(m, m.KV, own(m), Output{Path: "x", PartTensors: 3, Compress: true}); err == nil {
		t.Error("parts of a compressed output were planned")
	}
}

// A run that ended between the name and the end of its journal finds the file whole.
func TestCompressNamed(t *testing.T) {
	m := source(t)
	path := filepath.Join(t.TempDir(), "out.gguf")
	write := func(resume bool) (*Plan, *Result, error) {
		p := planOf(t, m, "Q8_0", Output{Path: path, Compress: true})
		progress := func(now Progress) {
			if !resume && now.Done == now.Total {
				if err := os.WriteFile(path, nil, 0o666); err != nil {
					t.Error(err)
				}
			}
		}
		opts := Options{Features: isa.Detect(), Workers: 2, Resume: resume, Progress: progress}
		res, err := p.Write(context.Background(), opts)
		return p, res, err
	}
	p, _, err := write(false)
	if !errors.As(err, new(*ExistsError)) {
		t.Fatalf("%v, expected that the name is taken", err)
	}
	journal, err := os.ReadFile(p.journalPath())
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if _, res, err := write(true); err != nil || res.Resumed != len(m.Tensors) {
		t.Fatalf("%v, %+v", err, res)
	}
	if err := os.WriteFile(p.journalPath(), journal, 0o666); err != nil {
		t.Fatal(err)
	}
	p, res, err := write(true)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != res.Bytes {
		t.Errorf("%v, %d bytes said", err, res.Bytes)
	}
	same(t, path, p)
}
