package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// KV is the metadata of a GGUF file. A method's second result is false where the key is missing; a key of another type is an error.
// Ints is for arrays of integers of any width, Int for such numbers.
type KV interface {
	String(key string) (v string, ok bool, err error)
	Strings(key string) (v []string, ok bool, err error)
	Float32s(key string) (v []float32, ok bool, err error)
	Ints(key string) (v []int64, ok bool, err error)
	Int(key string) (v int64, ok bool, err error)
	Bool(key string) (v, ok bool, err error)
}

// FromGGUF makes the tokenizer that the keys tokenizer.ggml.* describe: models llama (SentencePiece), gpt2 (byte-level BPE) and
// gemma4 (BPE over characters). The others wrap ErrUnsupported. The tokenizer keeps the strings that kv gives.
func FromGGUF(kv KV) (*Tokenizer, error) {
	t, err := fromGGUF(kv)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

const ggml = "tokenizer.ggml."

func fromGGUF(kv KV) (*Tokenizer, error) {
	model, ok, err := kv.String(ggml + "model")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%smodel is missing", ggml)
	}
	t := &Tokenizer{bos: -1, eos: -1, unknown: -1}
	if t.text, ok, err = kv.Strings(ggml + "tokens"); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%stokens is missing", ggml)
	}
	if t.kind, err = ggufTypes(kv, len(t.text)); err != nil {
		return nil, err
	}
	if err := t.ggufIDs(kv, model == "llama"); err != nil {
		return nil, err
	}
	addBOS := false
	switch model {
	case "llama":
		addBOS = true
		err = t.ggufScores(kv)
	case "gpt2", "gemma4":
		var pre string
		pre, _, err = kv.String(ggml + "pre")
		switch {
		case err != nil:
			return nil, err
		case model == "gemma4":
			pre = "gemma4"
		case pre == "":
			pre = "default"
		}
		p, ok := findPreType(pre)
		if !ok {
			return nil, fmt.Errorf("%spre is %q, which is not known", ggml, pre)
		}
		addBOS = p.addBOS || pre == "gemma4"
		err = t.ggufMerges(kv, p, pre)
	case "bert", "t5", "rwkv", "plamo2", "none", "no_vocab":
		return nil, fmt.Errorf("%smodel is %q: %w; ck reads llama (SentencePiece), gpt2 (byte-level BPE) and gemma4", ggml, model, ErrUnsupported)
	default:
		return nil, fmt.Errorf("%smodel is %q, which is not known: %w", ggml, model, ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return t, t.ggufSpecials(kv, addBOS)
}

// ggufTypes is token_type, all normal if it is missing.
func ggufTypes(kv KV, n int) ([]uint8, error) {
	kinds := make([]uint8, n)
	types, ok, err := kv.Ints(ggml + "token_type")
	if err != nil {
		return nil, err
	}
	if !ok {
		for i := range kinds {
			kinds[i] = typeNormal
		}
		return kinds, nil
	}
	if len(types) != n {
		return nil, fmt.Errorf("%stoken_type has %d entries for %d tokens", ggml, len(types), n)
	}
	for i, k := range types {
		if k < 0 || k > typeByte {
			return nil, fmt.Errorf("%stoken_type[%d] is %d, want 0 to 6", ggml, i, k)
		}
		kinds[i] = uint8(k)
	}
	return kinds, nil
}

func (t *Tokenizer) ggufScores(kv KV) error {
	scores, ok, err := kv.Float32s(ggml + "scores")
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(scores, func(s float32) bool { return s != s }); i >= 0 {
		return fmt.Errorf("%sscores[%d] is NaN, expected a number", ggml, i)
	}
	if !ok || len(scores) != len(t.text) {
		return fmt.Errorf("%sscores has %d entries for %d tokens", ggml, len(scores), len(t.text))
	}
	t.prefix = prefixAlways
	t.setScores(scores)
	if t.collapse, err = ggufFlag(kv, "remove_extra_whitespaces", t.collapse); err != nil {
		return err
	}
	if err := t.ggufCharMap(kv); err != nil {
		return err
	}
	return t.build(formEscaped)
}

// ggufCharMap reads precompiled_charsmap, by which texts are normalized.
func (t *Tokenizer) ggufCharMap(kv KV) error {
	list, ok, err := kv.Ints(ggml + "precompiled_charsmap")
	if err != nil || !ok {
		return err
	}
	raw := make([]byte, len(list))
	for i, v := range list {
		if v < math.MinInt8 || v > math.MaxUint8 {
			return fmt.Errorf("%sprecompiled_charsmap[%d] is %d, expected a byte", ggml, i, v)
		}
		raw[i] = byte(v)
	}
	m, err := parseCharMap(raw)
	if err != nil {
		return fmt.Errorf("%sprecompiled_charsmap: %w", ggml, err)
	}
	if m != nil {
		t.normal = append(t.normal, normStep{charMap: m})
	}
	return nil
}

// setScores makes t a SentencePiece BPE model.
func (t *Tokenizer) setScores(scores []float32) {
	t.form, t.chars, t.spans, t.escape, t.fuseUnknown, t.trimDecoded = formEscaped, true, true, true, true, true
	t.priority = ranks(scores)
}

// ranks numbers scores from the best on; equal scores share a number, NaN comes last.
func ranks(scores []float32) []uint32 {
	order := make([]uint64, len(scores))
	for i, s := range scores {
		// Descending order of floats as ascending order of integers.
		b := math.Float32bits(s + 0) // -0 becomes 0
		switch {
		case s != s:
			b = math.MaxUint32
		case b>>31 == 0:
			b = ^b &^ (1 << 31)
		}
		order[i] = uint64(b)<<32 | uint64(i)
	}
	slices.Sort(order)
	out := make([]uint32, len(scores))
	rank := uint32(0)
	for i, o := range order {
		if i > 0 && o>>32 != order[i-1]>>32 {
			rank++
		}
		out[uint32(o)] = rank
	}
	return out
}

func (t *Tokenizer) ggufMerges(kv KV, p preType, pre string) error {
	merges, ok, err := kv.Strings(ggml + "merges")
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%smerges is missing", ggml)
	}
	t.ignoreMerges, t.chars = p.ignoreMerges, p.chars
	if p.chars {
		t.form = formEscaped
		t.escape = pre != "whitespace"
	}
	if t.steps, err = splitAtAll(p.exprs); err != nil {
		return err
	}
	if err := t.build(t.form); err != nil {
		return err
	}
	return t.addMerges(len(merges), func(i int) (string, string) { return splitMerge(merges[i]) })
}

// ggufIDs reads the ids of special tokens; spm: those that SentencePiece has where the file does not say.
func (t *Tokenizer) ggufIDs(kv KV, spm bool) error {
	if spm && len(t.text) > 2 {
		t.bos, t.eos, t.unknown = 1, 2, 0
	}
	eot, eom, unknown := int32(-1), int32(-1), t.unknown
	for _, k := range []struct {
		key string
		id  *int32
	}{{"bos_token_id", &t.bos}, {"eos_token_id", &t.eos}, {"unknown_token_id", &unknown}, {"eot_token_id", &eot}, {"eom_token_id", &eom}} {
		n, ok, err := kv.Int(ggml + k.key)
		if err != nil {
			return err
		}
		if !ok || n == math.MaxUint32 || n == -1 { // the null token
			continue
		}
		v, err := t.checkID(n, ggml+k.key)
		if err != nil {
			return err
		}
		*k.id = v
	}
	if spm {
		t.unknown = unknown
	}
	t.markControls(eot, eom)
	return nil
}

// ggufSpecials reads the flags of special tokens.
func (t *Tokenizer) ggufSpecials(kv KV, addBOS bool) error {
	var flags [3]bool
	for i, f := range []struct {
		key string
		def bool
	}{{"add_bos_token", addBOS}, {"add_eos_token", false}, {"add_space_prefix", t.prefix != prefixNever}} {
		var err error
		if flags[i], err = ggufFlag(kv, f.key, f.def); err != nil {
			return err
		}
	}
	if _, said, err := kv.Bool(ggml + "add_bos_token"); err != nil || said && flags[0] && t.bos < 0 {
		return fmt.Errorf("%sadd_bos_token is set, but bos_token_id is missing", ggml)
	}
	if flags[1] && t.eos < 0 {
		return fmt.Errorf("%sadd_eos_token is set, but eos_token_id is missing", ggml)
	}
	if !flags[2] {
		t.prefix, t.trimDecoded = prefixNever, false
	}
	list, err := t.ggufList(kv)
	if err != nil {
		return err
	}
	t.finish(list, flags[0], flags[1])
	return nil
}

// ggufFlag is a bool of the file, def if it has none.
func ggufFlag(kv KV, key string, def bool) (bool, error) {
	on, ok, err := kv.Bool(ggml + key)
	if !ok {
		on = def
	}
	return on, err
}

// ggufList lists the special tokens. GGUF does not say which of them take white space with them; llama.cpp knows it by the
// model's name.
func (t *Tokenizer) ggufList(kv KV) ([]special, error) {
	name, _, err := kv.String("general.name")
	if err != nil {
		return nil, err
	}
	name = strings.ToLower(name)
	phi3 := strings.Contains(name, "phi-3") || strings.Contains(name, "phi3")
	pre, _, err := kv.String(ggml + "pre")
	if err != nil {
		return nil, err
	}
	mask := ""
	switch {
	case strings.HasPrefix(pre, "jina-v2-"):
		mask = "<mask>"
	case strings.Contains(name, "modern-bert"):
		mask = "[MASK]"
	}
	var list []special
	for id, k := range t.kind {
		if k != typeControl && k != typeUnknown && k != typeUserDefined {
			continue
		}
		s := special{text: t.text[id], id: int32(id), control: k != typeUserDefined}
		s.rstrip = phi3 && s.text != "<unk>" && s.text != "<s>" && s.text != "<|endoftext|>"
		s.lstrip = mask != "" && s.text == mask
		list = append(list, s)
	}
	return list, nil
}
