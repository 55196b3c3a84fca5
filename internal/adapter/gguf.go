package adapter

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// floatTypes are those of the numbers of adapters.
var floatTypes = []quant.Type{quant.F32, quant.F16, quant.BF16}

// WriteGGUF writes the adapter as llama.cpp's convert_lora_to_gguf.py does, in type F32, F16 or BF16: NAME.lora_a has rows of in elements, one for each
// rank, NAME.lora_b rows of rank elements. llama.cpp scales by alpha/rank: with RSLoRA the alpha of the file is alpha*sqrt(rank), for which all ranks
// must be one.
func (a *Adapter) WriteGGUF(w io.Writer, typ quant.Type) error {
	if err := a.sound(); err != nil {
		return err
	}
	if !slices.Contains(floatTypes, typ) {
		return fmt.Errorf("an adapter of %v is not supported; choose F32, F16 or BF16", typ)
	}
	alpha := a.Alpha
	if a.RSLoRA {
		rank := a.Targets[0].Rank
		for i := range a.Targets {
			if t := &a.Targets[i]; t.Rank != rank {
				return fmt.Errorf("tensor %s: rank %d, and %s has %d; a GGUF adapter with rslora needs one rank: write a PEFT folder, or merge it", t.Name, t.Rank,
					a.Targets[0].Name, rank)
			}
		}
		alpha *= math.Sqrt(float64(rank))
	}
	kv := &gguf.Metadata{}
	kv.Set("general.architecture", a.Arch)
	kv.Set("general.type", "adapter")
	if a.Base != "" {
		kv.Set("general.base_model.count", uint32(1))
		kv.Set("general.base_model.0.name", a.Base)
	}
	kv.Set("general.file_type", map[quant.Type]uint32{quant.F32: 0, quant.F16: 1, quant.BF16: 32}[typ])
	kv.Set("adapter.type", "lora")
	kv.Set("adapter.lora.alpha", float32(alpha))
	var infos []gguf.TensorInfo
	for i := range a.Targets {
		t := &a.Targets[i]
		infos = append(infos,
			gguf.TensorInfo{Name: t.Name + ".lora_a", Type: typ, Shape: []int{t.In, t.Rank}},
			gguf.TensorInfo{Name: t.Name + ".lora_b", Type: typ, Shape: []int{t.Rank, t.Out}})
	}
	out, err := gguf.NewWriter(w, kv, infos)
	if err != nil {
		return err
	}
	for i := range a.Targets {
		t := &a.Targets[i]
		for j, v := range [][]float32{t.A, t.B} {
			b, err := encoded(typ, v, infos[2*i+j].Shape[0])
			if err != nil {
				return fmt.Errorf("tensor %s: %w", infos[2*i+j].Name, err)
			}
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

// ReadGGUF reads llama.cpp's adapter of model m.
func ReadGGUF(path string, m *gguf.Model) (*Adapter, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := fromGGUF(f)
	if err == nil {
		err = a.Check(m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func fromGGUF(f *gguf.Model) (*Adapter, error) {
	a := &Adapter{}
	for key, want := range map[string]string{"general.type": "adapter", "adapter.type": "lora"} {
		if v, _, err := f.KV.String(key); err != nil {
			return nil, err
		} else if v != want {
			return nil, fmt.Errorf("%s: is %.100q, expected %q; the file is no LoRA adapter", key, v, want)
		}
	}
	var err error
	var ok bool
	if a.Arch, ok, err = f.KV.String("general.architecture"); err != nil || !ok {
		return nil, fmt.Errorf("general.architecture: is missing, or no string; make the adapter again")
	}
	if a.Alpha, ok, err = f.KV.Float("adapter.lora.alpha"); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("adapter.lora.alpha: is missing; make the adapter again")
	}
	if a.Base, _, err = f.KV.String("general.base_model.0.name"); err != nil {
		return nil, err
	}
	for _, x := range f.Tensors {
		name, is := strings.CutSuffix(x.Name, ".lora_a")
		if !is {
			if stem, b := strings.CutSuffix(x.Name, ".lora_b"); !b || f.Tensor(stem+".lora_a") == nil {
				return nil, fmt.Errorf("tensor %s: has no partner, or is no part of a LoRA adapter", x.Name)
			}
			continue
		}
		b := f.Tensor(name + ".lora_b")
		switch {
		case b == nil:
			return nil, fmt.Errorf("tensor %s: there is no %s.lora_b", x.Name, name)
		case len(x.Shape) != 2 || len(b.Shape) != 2 || x.Shape[1] != b.Shape[0]:
			return nil, fmt.Errorf("tensor %s: shapes %v and %v of %s.lora_b have no rank in common", x.Name, x.Shape, b.Shape, name)
		}
		t := Target{Name: name, Rank: x.Shape[1], In: x.Shape[0], Out: b.Shape[1]}
		for _, part := range []struct {
			from *gguf.Tensor
			to   *[]float32
		}{{x, &t.A}, {b, &t.B}} {
			if !slices.Contains(floatTypes, part.from.Type) {
				return nil, fmt.Errorf("tensor %s: type %v, expected F32, F16 or BF16", part.from.Name, part.from.Type)
			}
			if *part.to, err = f.Decode(part.from, part.from.Rows()*part.from.Cols()); err == nil {
				err = finite(*part.to, part.from.Cols())
			}
			if err != nil {
				return nil, fmt.Errorf("tensor %s: %w", part.from.Name, err)
			}
		}
		a.Targets = append(a.Targets, t)
	}
	return a, nil
}
