// Command logits prints the SHA-256 of the logits of every reference model that runs, on every tier of this CPU: what a change that may alter
// no bit is held against.
//
//	go run ./test/logits > before; (the change); go run ./test/logits | diff before -
//
// A line has the sum, the model's file or folder, the tier and the type of the activations: auto, or f32 as with --act f32. The logits are
// those of all positions of all sequences of ids.json, of a cache in F16. Models that do not run are named on stderr with the reason.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/isa"
)

var (
	data    = flag.String("data", "../shared/data/models", "the folder of the reference models")
	threads = flag.Int("t", 1, "threads; the bits are those of any number, and one is not held up on a busy machine")
	ubatch  = flag.Int("ubatch", 512, "rows of a walk")
	only    = flag.String("only", "", "this model alone")
)

func main() {
	flag.Parse()
	if err := all(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "logits:", err)
		os.Exit(1)
	}
}

// all prints the lines of all models, in the order of their names.
func all(w io.Writer) error {
	dirs, err := filepath.Glob(filepath.Join(*data, "*", "ids.json"))
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return fmt.Errorf("%s: no reference models; -data names their folder", *data)
	}
	for _, ids := range dirs {
		dir := filepath.Dir(ids)
		if *only != "" && filepath.Base(dir) != *only {
			continue
		}
		sequences, err := readSequences(ids)
		if err != nil {
			return err
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(dir, "hf")); err == nil {
			paths = append(paths, filepath.Join(dir, "hf"))
		}
		slices.Sort(paths)
		for _, path := range paths {
			if err := model(w, path, sequences); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	return nil
}

// readSequences reads the token ids of the sequences of a file ids.json.
func readSequences(path string) ([][]int32, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Sequences []struct {
			IDs []int32 `json:"ids"`
		} `json:"sequences"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out [][]int32
	for _, s := range doc.Sequences {
		out = append(out, s.IDs)
	}
	return out, nil
}

// model prints the lines of one file or folder.
func model(w io.Writer, path string, sequences [][]int32) error {
	open := gguf.Open
	if filepath.Ext(path) != ".gguf" {
		open = hf.Open
	}
	m, err := open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	name, err := filepath.Rel(*data, path)
	if err != nil {
		return err
	}
	for _, tier := range isa.Available(isa.Detect()) {
		for _, act := range []string{"auto", "f32"} {
			opt := engine.Options{Tier: tier.String(), Threads: *threads, UBatch: *ubatch, F32Act: act == "f32"}
			sum := sha256.New()
			for _, ids := range sequences {
				if err := logits(sum, m, opt, ids); err != nil {
					return err
				}
			}
			fmt.Fprintf(w, "%x %s %s %s\n", sum.Sum(nil), name, tier, act)
		}
	}
	return nil
}

// logits adds the logits of all positions of one sequence to sum, little-endian.
func logits(sum hash.Hash, m *gguf.Model, opt engine.Options, ids []int32) error {
	e, err := engine.Open(m, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	var b []byte
	return e.Forward(context.Background(), e.NewSeq(), ids, engine.All, func(_ int, l []float32) error {
		b = b[:0]
		for _, v := range l {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		_, err := sum.Write(b)
		return err
	})
}
