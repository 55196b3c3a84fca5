package adapter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/jsonfile"
	"ck/internal/quant"
	"ck/internal/safetensors"
)

// Files of a PEFT folder, and the names of its tensors: prefix, the name of the matrix in a model's folder without ".weight", and which of the two.
const (
	configName  = "adapter_config.json"
	weightsName = "adapter_model.safetensors"
	prefix      = "base_model.model."
	suffixA     = ".lora_A.weight"
	suffixB     = ".lora_B.weight"

	maxConfigBytes = 16 << 20
)

// config is adapter_config.json, as far as it says what the tensors mean (PEFT, LoraConfig).
type config struct {
	Type        string             `json:"peft_type"`
	Rank        *int               `json:"r"`
	Alpha       *float64           `json:"lora_alpha"`
	RSLoRA      bool               `json:"use_rslora"`
	Base        *string            `json:"base_model_name_or_path"`
	RankPattern map[string]int     `json:"rank_pattern"`
	Alphas      map[string]float64 `json:"alpha_pattern"`
	Bias        string             `json:"bias"`
	FanInFanOut bool               `json:"fan_in_fan_out"`
	Init        json.RawMessage    `json:"init_lora_weights"`

	ranks []rankPattern
}

// rankPattern is a rank of the modules whose names match.
type rankPattern struct {
	key  string
	re   *regexp.Regexp
	rank int
}

// others are keys of forms of LoRA that compute other than W + scale * B * A, and of what an adapter has beside it. They must be null, false or empty.
var others = []string{"use_dora", "use_qalora", "lora_bias", "modules_to_save", "trainable_token_indices", "layer_replication", "alora_invocation_tokens",
	"target_parameters", "arrow_config"}

// parseConfig reads adapter_config.json. Errors name the key.
func parseConfig(b []byte) (*config, error) {
	c := &config{}
	if err := jsonfile.Unmarshal(b, c); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := jsonfile.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for _, key := range others {
		switch v := strings.TrimSpace(string(all[key])); v {
		case "", "null", "false", "[]", "{}":
		default:
			return nil, fmt.Errorf("%s: is %.60s, which is not supported; merge the adapter with PEFT", key, v)
		}
	}
	var init string
	json.Unmarshal(c.Init, &init) // true, false, or the name of a method
	for _, m := range []string{"pissa", "olora", "corda", "loftq"} {
		if strings.HasPrefix(strings.ToLower(init), m) {
			return nil, fmt.Errorf("init_lora_weights: is %.60q, which changes the model's own weights; save the adapter as a plain one with PEFT", init)
		}
	}
	switch {
	case c.Type != "LORA":
		return nil, fmt.Errorf("peft_type: is %.60q, expected LORA", c.Type)
	case c.Rank == nil:
		return nil, errors.New("r: is missing; it is the rank")
	case *c.Rank < 1 || *c.Rank > maxRank:
		return nil, fmt.Errorf("r: is %d, expected a rank from 1 to %d", *c.Rank, maxRank)
	case c.Alpha == nil:
		return nil, errors.New("lora_alpha: is missing; it gives the scale")
	case len(c.Alphas) > 0:
		return nil, errors.New("alpha_pattern: has entries, and only one alpha for all is supported; merge the adapter with PEFT")
	case c.Bias != "" && c.Bias != "none":
		return nil, fmt.Errorf("bias: is %.60q, expected none; adapters with biases are not supported", c.Bias)
	case c.FanInFanOut:
		return nil, errors.New("fan_in_fan_out: is true, which no supported model has")
	}
	for key, rank := range c.RankPattern {
		re, err := regexp.Compile("^(.*\\.)?(" + key + ")$") // as PEFT matches
		switch {
		case err != nil:
			return nil, fmt.Errorf("rank_pattern: %.100q: %w", key, err)
		case rank < 1 || rank > maxRank:
			return nil, fmt.Errorf("rank_pattern: %.100q: is %d, expected a rank from 1 to %d", key, rank, maxRank)
		}
		c.ranks = append(c.ranks, rankPattern{key, re, rank})
	}
	slices.SortFunc(c.ranks, func(a, b rankPattern) int { return strings.Compare(a.key, b.key) })
	return c, nil
}

// rankOf is the rank of a module, and false if patterns contradict each other.
func (c *config) rankOf(module string) (int, bool) {
	rank, found := *c.Rank, false
	for _, p := range c.ranks {
		if p.re.MatchString(module) {
			if found && p.rank != rank {
				return 0, false
			}
			rank, found = p.rank, true
		}
	}
	return rank, true
}

// ReadPEFT reads a folder of PEFT, an adapter of model m: adapter_config.json and adapter_model.safetensors. class is the class of the model in
// transformers, "" for the one that its metadata suggests. Rows of queries and keys come into GGUF's order. Whatever PEFT computes beyond
// W + scale * B * A is an error that names the key.
func ReadPEFT(dir string, m *gguf.Model, class string) (*Adapter, error) {
	names, err := hf.NewNaming(m, class)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	path := filepath.Join(dir, configName)
	if st, err := os.Stat(path); err == nil && st.Size() > maxConfigBytes {
		return nil, fmt.Errorf("%s: has %d bytes, the limit is %d; it is no %s", path, st.Size(), maxConfigBytes, configName)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a := &Adapter{Alpha: *c.Alpha, RSLoRA: c.RSLoRA}
	if a.Arch, _, err = m.KV.String("general.architecture"); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if c.Base != nil {
		a.Base = *c.Base
	}
	path = filepath.Join(dir, weightsName)
	f, err := safetensors.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Stat(filepath.Join(dir, "adapter_model.bin")); e == nil {
			return nil, fmt.Errorf("%w; adapter_model.bin is a pickle, which is not read: save the adapter as safetensors", err)
		}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = f.Map.Guard(func() error { return a.addPEFT(f, c, m, names) })
	if err == nil {
		err = a.Check(m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// addPEFT adds the targets of the file, in the order of the model's tensors.
func (a *Adapter) addPEFT(f *safetensors.File, c *config, m *gguf.Model, names *hf.Naming) error {
	halves := map[string][2]*safetensors.Tensor{} // by module
	for _, t := range f.Tensors {
		module, which, err := moduleOf(t.Name)
		if err != nil {
			return err
		}
		h := halves[module]
		if h[which] != nil {
			return fmt.Errorf("tensor %.100q: there are two of that module", t.Name)
		}
		h[which] = t
		halves[module] = h
	}
	known := map[string]string{} // modules by the GGUF name of their matrix
	for module, h := range halves {
		for which, suffix := range []string{suffixA, suffixB} {
			if h[which] == nil {
				return fmt.Errorf("tensor %.100q: is missing, its partner is there", prefix+module+suffix)
			}
		}
		name, err := names.GGUF(module + ".weight")
		if err == nil {
			_, err = base(m, name)
		}
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", h[0].Name, err)
		}
		known[name] = module
	}
	for _, w := range m.Tensors {
		module, ok := known[w.Name]
		if !ok {
			continue
		}
		t, err := target(w, halves[module], names)
		if err != nil {
			return err
		}
		if rank, ok := c.rankOf(module); !ok {
			return fmt.Errorf("%s: rank_pattern: two patterns give %.100q different ranks", configName, module)
		} else if rank != t.Rank {
			return fmt.Errorf("tensor %.100q: shape %v, but %s says rank %d", halves[module][0].Name, halves[module][0].Shape, configName, rank)
		}
		a.Targets = append(a.Targets, t)
	}
	return nil
}

// moduleOf is the module of a tensor's name, and whether it is A (0) or B.
func moduleOf(name string) (module string, which int, err error) {
	plain := strings.Replace(name, ".default.weight", ".weight", 1) // some programs leave the adapter's own name
	if rest, ok := strings.CutPrefix(plain, prefix); ok {
		if module, ok := strings.CutSuffix(rest, suffixA); ok {
			return module, 0, nil
		}
		if module, ok := strings.CutSuffix(rest, suffixB); ok {
			return module, 1, nil
		}
	}
	return "", 0, fmt.Errorf("tensor %.100q: is not called %sMODULE%s or …%s; only such adapters are supported", name, prefix, suffixA, suffixB)
}

// target is the change of matrix w.
func target(w *gguf.Tensor, h [2]*safetensors.Tensor, names *hf.Naming) (Target, error) {
	t := Target{Name: w.Name, In: w.Shape[0], Out: w.Shape[1]}
	_, heads, err := names.Folder(w)
	if err != nil {
		return t, err
	}
	for _, x := range h {
		if len(x.Shape) != 2 {
			return t, fmt.Errorf("tensor %.100q: shape %v, expected a matrix", x.Name, x.Shape)
		}
	}
	t.Rank = h[0].Shape[0]
	switch {
	case h[0].Shape[1] != t.In:
		err = fmt.Errorf("tensor %.100q: shape %v, expected rows of %d elements as %s has", h[0].Name, h[0].Shape, t.In, w.Name)
	case h[1].Shape[0] != t.Out:
		err = fmt.Errorf("tensor %.100q: shape %v, expected %d rows as %s has", h[1].Name, h[1].Shape, t.Out, w.Name)
	case h[1].Shape[1] != t.Rank:
		err = fmt.Errorf("tensor %.100q: shape %v, but the rank of %.100q is %d", h[1].Name, h[1].Shape, h[0].Name, t.Rank)
	case t.Rank < 1 || t.Rank > maxRank:
		err = fmt.Errorf("tensor %.100q: shape %v, expected a rank from 1 to %d", h[0].Name, h[0].Shape, maxRank)
	}
	if err != nil {
		return t, err
	}
	for i, to := range []*[]float32{&t.A, &t.B} {
		typ, ok := h[i].Type()
		if !ok || !slices.Contains(floatTypes, typ) {
			return t, fmt.Errorf("tensor %.100q: dtype %.20s, expected F32, F16 or BF16", h[i].Name, h[i].DType)
		}
		*to = make([]float32, len(h[i].Data)/typ.BlockBytes())
		quant.Decode(typ, *to, h[i].Data)
		if err := finite(*to, h[i].Shape[1]); err != nil {
			return t, fmt.Errorf("tensor %.100q: %w", h[i].Name, err)
		}
	}
	t.B = hf.GGUFRows(t.B, t.Rank, heads)
	return t, nil
}

// PEFTOptions says how a folder is written.
type PEFTOptions struct {
	Type    quant.Type // F32, F16 or BF16
	Class   string     // of the model, as ReadPEFT has it
	Dropout float64    // that the adapter was trained with, for the record
	Force   bool       // replaces an adapter's folder
}

// WritePEFT writes the adapter of model m as a folder of PEFT, which appears whole or not at all; see hf.WriteFolder. Every number is rounded once to
// the type.
func (a *Adapter) WritePEFT(ctx context.Context, dir string, m *gguf.Model, o PEFTOptions) error {
	if err := a.Check(m); err != nil {
		return err
	}
	if !slices.Contains(floatTypes, o.Type) {
		return fmt.Errorf("an adapter of %v is not supported; choose F32, F16 or BF16", o.Type)
	}
	names, err := hf.NewNaming(m, o.Class)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	modules := make([]string, len(a.Targets))
	heads := make([]int, len(a.Targets))
	for i := range a.Targets {
		name, h, err := names.Folder(m.Tensor(a.Targets[i].Name))
		if err != nil {
			return err
		}
		modules[i], heads[i] = strings.TrimSuffix(name, ".weight"), h
	}
	text, err := a.peftConfig(m, names, modules, o)
	if err != nil {
		return err
	}
	return hf.WriteFolder(dir, configName, o.Force, func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, configName), text, 0o666); err != nil {
			return err
		}
		return a.writeWeights(ctx, filepath.Join(tmp, weightsName), modules, heads, o.Type)
	})
}

func (a *Adapter) writeWeights(ctx context.Context, path string, modules []string, heads []int, typ quant.Type) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	var infos []safetensors.Info
	values := map[string]func() ([]float32, int){} // and the length of a row
	for i := range a.Targets {
		t := &a.Targets[i]
		nameA, nameB := prefix+modules[i]+suffixA, prefix+modules[i]+suffixB
		infos = append(infos,
			safetensors.Info{Name: nameA, DType: typ.String(), Shape: []int{t.Rank, t.In}},
			safetensors.Info{Name: nameB, DType: typ.String(), Shape: []int{t.Out, t.Rank}})
		values[nameA] = func() ([]float32, int) { return t.A, t.In }
		values[nameB] = func() ([]float32, int) { return hf.FolderRows(t.B, t.Rank, heads[i]), t.Rank }
	}
	safetensors.Sort(infos)
	buffered := bufio.NewWriter(f)
	w, err := safetensors.NewWriter(buffered, map[string]string{"format": "pt"}, infos)
	if err != nil {
		return err
	}
	for _, t := range infos {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v, cols := values[t.Name]()
		b, err := encoded(typ, v, cols)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// peftConfig is the text of adapter_config.json.
func (a *Adapter) peftConfig(m *gguf.Model, names *hf.Naming, modules []string, o PEFTOptions) ([]byte, error) {
	rank, pattern := a.Targets[0].Rank, map[string]int{}
	for i := range a.Targets {
		if r := a.Targets[i].Rank; r != rank {
			pattern[regexp.QuoteMeta(modules[i])] = r
		}
	}
	out := map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": nil, "inference_mode": true,
		"r": rank, "lora_alpha": a.Alpha, "use_rslora": a.RSLoRA, "rank_pattern": pattern, "alpha_pattern": struct{}{}, "lora_dropout": o.Dropout,
		"target_modules": targetModules(m, names, modules), "bias": "none", "fan_in_fan_out": false, "init_lora_weights": true,
		"modules_to_save": nil, "use_dora": false, "layers_to_transform": nil, "layers_pattern": nil,
	}
	if a.Base != "" {
		out["base_model_name_or_path"] = a.Base
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configName, err)
	}
	return append(b, '\n'), nil
}

// targetModules names the modules as PEFT finds them: by the last part of their names where all modules with it are adapted, else in full.
func targetModules(m *gguf.Model, names *hf.Naming, modules []string) []string {
	last := func(module string) string { return module[strings.LastIndexByte(module, '.')+1:] }
	all, own := map[string]int{}, map[string]int{}
	for _, t := range m.Tensors {
		name, _, _ := names.Folder(t) // which names those that it refuses, too
		if module, ok := strings.CutSuffix(name, ".weight"); ok {
			all[last(module)]++
		}
	}
	for _, module := range modules {
		own[last(module)]++
	}
	var out []string
	for _, module := range modules {
		if l := last(module); own[l] == all[l] {
			module = l
		}
		out = append(out, module)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
