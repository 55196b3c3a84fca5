package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/jsonfile"
)

// ggufQuantizationVersion is GGML_QUANT_VERSION, the form of the block types that this project reads and writes.
const ggufQuantizationVersion = 2

// Describe sets the keys of m's metadata that say what model it is, for people and programs that list models:
// general.* but for architecture and file type, which Open sets. They come from the model card (README.md),
// config.json and generation_config.json of folder dir, and from the folder's name. m has the tensors, whose number
// gives the size.
func Describe(m *gguf.Model, dir string) error {
	card, err := readCard(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	var config struct {
		NameOrPath string `json:"_name_or_path"`
	}
	if err := readOptional(filepath.Join(dir, "config.json"), &config); err != nil {
		return err
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	total, label := parameters(m.Tensors)
	d := description{kv: m.KV, card: card, total: total, text: map[string]string{}}
	d.fromCard()
	if strings.Count(config.NameOrPath, "/") <= 1 { // else it is the path of a file
		d.fromID(config.NameOrPath)
	}
	d.fromID(filepath.Base(full))
	if d.text["name"] == "" {
		d.text["name"] = filepath.Base(full)
	}
	if d.text["size_label"] == "" && total > 0 {
		d.text["size_label"] = label
	}
	m.KV.Set("general.type", "model")
	if err := setSampling(m.KV, dir); err != nil {
		return err
	}
	d.write()
	m.KV.Set("general.quantization_version", uint32(ggufQuantizationVersion))
	return nil
}

// description gathers what is known of a model. What is found first stays.
type description struct {
	kv    *gguf.Metadata
	card  card
	total float64           // parameters
	text  map[string]string // by the key's name behind general.
}

func (d *description) put(key, value string) {
	if d.text[key] == "" {
		d.text[key] = value
	}
}

// cardKeys are the keys of a card for texts of the description. Cards write them with "model_" before them too.
var cardKeys = []struct{ key, card string }{
	{"name", "name"}, {"author", "author"}, {"version", "version"}, {"organization", "organization"},
	{"description", "description"}, {"finetune", "finetune"}, {"basename", "basename"}, {"size_label", "size_label"},
	{"source.url", "url"}, {"source.doi", "doi"}, {"source.uuid", "uuid"}, {"source.repo_url", "repo_url"},
}

// moreCardKeys are keys of a card that are written in one way.
var moreCardKeys = []struct{ key, card string }{
	{"author", "model_creator"}, {"basename", "model_type"},
	{"license", "license"}, {"license.name", "license_name"}, {"license.link", "license_link"},
}

// textKeys are the keys that write sets, in order.
var textKeys = []string{"name", "author", "version", "organization", "finetune", "basename", "description", "size_label",
	"license", "license.name", "license.link", "source.url", "source.doi", "source.uuid", "source.repo_url"}

func (d *description) fromCard() {
	for _, prefix := range []string{"", "model_"} {
		for _, k := range cardKeys {
			d.put(k.key, strings.Join(d.card[prefix+k.card], ","))
		}
	}
	for _, k := range moreCardKeys {
		d.put(k.key, strings.Join(d.card[k.card], ","))
	}
}

// fromID takes what the name of a model says, as owner/name-size-finetune or without owner.
func (d *description) fromID(id string) {
	n := splitName(id, d.total)
	d.put("name", title(n.full))
	d.put("organization", title(n.owner))
	d.put("basename", n.base)
	d.put("finetune", n.finetune)
	d.put("version", n.version)
	d.put("size_label", n.size)
}

func (d *description) write() {
	for _, key := range textKeys {
		if v := d.text[key]; v != "" {
			d.kv.Set("general."+key, v)
		}
	}
	d.setOrigins("general.base_model.", "base_model", "base_models", "base_model_sources")
	d.setOrigins("general.dataset.", "datasets", "dataset", "dataset_sources")
	for _, l := range []struct {
		key  string
		from []string
	}{{"general.tags", []string{"tags", "pipeline_tag"}}, {"general.languages", []string{"languages", "language"}}} {
		var all []string
		for _, k := range l.from {
			all = append(all, d.card[k]...)
		}
		if len(all) > 0 {
			d.kv.Set(l.key, all)
		}
	}
}

// setOrigins writes what the model was made of: a number, and keys for each, whose names stand in the card under one
// of names.
func (d *description) setOrigins(prefix string, names ...string) {
	i := slices.IndexFunc(names, func(n string) bool { return len(d.card[n]) > 0 })
	if i < 0 {
		return
	}
	ids := d.card[names[i]]
	d.kv.Set(prefix+"count", uint32(len(ids)))
	for i, id := range ids {
		set := func(key, value string) {
			if value != "" {
				d.kv.Set(fmt.Sprintf("%s%d.%s", prefix, i, key), value)
			}
		}
		const site = "huggingface.co/"
		url := ""
		if at := strings.Index(id, "://"); at > 0 {
			url = id
			id = ""
			if path, ok := strings.CutPrefix(url[at+len("://"):], site); ok && strings.Count(path, "/") == 1 {
				id = path
			}
		}
		n := splitName(id, d.total)
		set("name", title(n.full))
		set("version", n.version)
		set("organization", title(n.owner))
		if url == "" && n.owner != "" && n.full != "" {
			url = "https://" + site + n.owner + "/" + n.full
		}
		set("repo_url", url)
	}
}

// parameters counts the numbers of all tensors, and gives the label of that size: of a model of experts their number
// and the size with one of them.
func parameters(tensors []*gguf.Tensor) (total float64, label string) {
	var one, experts, kinds float64
	for _, t := range tensors {
		size := 1.0
		for _, n := range t.Shape {
			size *= float64(n)
		}
		total += size
		if n := len(t.Shape); n >= 3 && strings.Contains(t.Name, "_exps.") {
			size /= float64(t.Shape[n-1])
			experts += float64(t.Shape[n-1])
			kinds++
		}
		one += size
	}
	if kinds > 0 {
		return total, fmt.Sprintf("%.0fx%s", math.Floor(experts/kinds), sizeLabel(one))
	}
	return total, sizeLabel(total)
}

// sizeLabel writes a number of parameters with two digits at least, as 1.5B or 151K.
func sizeLabel(n float64) string {
	unit, scale := "K", 1e-3
	switch {
	case n > 1e12:
		unit, scale = "T", 1e-12
	case n > 1e9:
		unit, scale = "B", 1e-9
	case n > 1e6:
		unit, scale = "M", 1e-6
	}
	n *= scale
	digits := 0
	switch whole := math.RoundToEven(n); {
	case whole < 1:
		digits = 2
	case whole < 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f%s", digits, n, unit)
}

// setSampling writes the settings that generation_config.json recommends.
func setSampling(kv *gguf.Metadata, dir string) error {
	var c struct {
		TopK        *int32   `json:"top_k"`
		TopP        *float32 `json:"top_p"`
		MinP        *float32 `json:"min_p"`
		Temperature *float32 `json:"temperature"`
		Repeat      *float32 `json:"repetition_penalty"`
	}
	if err := readOptional(filepath.Join(dir, "generation_config.json"), &c); err != nil {
		return err
	}
	if c.TopK != nil {
		kv.Set("general.sampling.top_k", *c.TopK)
	}
	for _, f := range []struct {
		key   string
		value *float32
	}{{"top_p", c.TopP}, {"min_p", c.MinP}, {"temp", c.Temperature}, {"penalty_repeat", c.Repeat}} {
		if f.value != nil {
			kv.Set("general.sampling."+f.key, *f.value)
		}
	}
	return nil
}

// readOptional reads a JSON file, if it is there.
func readOptional(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := jsonfile.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
