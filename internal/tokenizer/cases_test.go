package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"ck/internal/testkit"
)

// mapKV is GGUF metadata in memory.
type mapKV map[string]any

func get[T any](kv mapKV, key string) (v T, ok bool, err error) {
	x, ok := kv[key]
	if v, is := x.(T); is || !ok {
		return v, ok, nil
	}
	return v, false, fmt.Errorf("%s: is a %T", key, x)
}

func (kv mapKV) String(key string) (string, bool, error)      { return get[string](kv, key) }
func (kv mapKV) Strings(key string) ([]string, bool, error)   { return get[[]string](kv, key) }
func (kv mapKV) Float32s(key string) ([]float32, bool, error) { return get[[]float32](kv, key) }
func (kv mapKV) Ints(key string) ([]int64, bool, error)       { return get[[]int64](kv, key) }
func (kv mapKV) Int(key string) (int64, bool, error)          { return get[int64](kv, key) }
func (kv mapKV) Bool(key string) (bool, bool, error)          { return get[bool](kv, key) }

// readKV reads the metadata of a whole and well-formed GGUF file.
func readKV(b []byte) mapKV {
	u32 := func() uint32 { v := binary.LittleEndian.Uint32(b); b = b[4:]; return v }
	u64 := func() uint64 { v := binary.LittleEndian.Uint64(b); b = b[8:]; return v }
	str := func() string { n := u64(); s := string(b[:n]); b = b[n:]; return s }
	integer := func(kind uint32) int64 {
		size := map[uint32]int{0: 1, 1: 1, 7: 1, 2: 2, 3: 2, 4: 4, 5: 4, 10: 8, 11: 8}[kind]
		var raw [8]byte
		copy(raw[:], b[:size])
		b = b[size:]
		v := int64(binary.LittleEndian.Uint64(raw[:]))
		if kind == 1 || kind == 3 || kind == 5 { // signed
			v = v << (64 - 8*size) >> (64 - 8*size)
		}
		return v
	}
	value := func(kind uint32) any {
		switch kind {
		case 6:
			return math.Float32frombits(u32())
		case 7:
			v := b[0] != 0
			b = b[1:]
			return v
		case 8:
			return str()
		case 12:
			return math.Float64frombits(u64())
		case 9:
			elem, n := u32(), int(u64())
			switch elem {
			case 8:
				out := make([]string, n)
				for i := range out {
					out[i] = str()
				}
				return out
			case 6:
				out := make([]float32, n)
				for i := range out {
					out[i] = math.Float32frombits(u32())
				}
				return out
			default:
				out := make([]int64, n)
				for i := range out {
					out[i] = integer(elem)
				}
				return out
			}
		}
		return integer(kind)
	}
	b = b[8:]
	u64()
	kv := mapKV{}
	for range u64() {
		key := str()
		kv[key] = value(u32())
	}
	return kv
}

// readData is a file of the reference data, unpacked if its name ends in .gz.
func readData(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(testkit.Data(t, "tokenizers/"+name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// source is one file of one vocabulary. The tokenizer.json files here lack what their repositories say in tokenizer_config.json
// about BOS, so it stands here.
type source struct{ vocab, form, config string }

var sources = []source{
	{"gpt-2", "gguf", ""}, {"mpt", "gguf", ""}, {"starcoder", "gguf", ""}, {"llama-bpe", "gguf", ""}, {"qwen2", "gguf", ""},
	{"deepseek-llm", "gguf", ""}, {"deepseek-coder", "gguf", ""}, {"gemma-4", "gguf", ""}, {"llama-spm", "gguf", ""}, {"phi-3", "gguf", ""},
	{"llama-bpe", "json", `{"bos_token":"<|begin_of_text|>","eos_token":"<|end_of_text|>","add_bos_token":true}`},
	{"qwen3", "json", `{"bos_token":null,"eos_token":"<|im_end|>","add_bos_token":false}`},
	{"deepseek-v3", "json", `{"bos_token":{"__type":"AddedToken","content":"<｜begin▁of▁sentence｜>"},"add_bos_token":true,"add_eos_token":false}`},
	{"gpt-oss", "json", `{"bos_token":"<|startoftext|>","eos_token":"<|return|>"}`},
	{"tekken", "tekken", ""}, {"llama-spm", "model", ""}, {"mistral-v1", "model", ""},
	// The same files as a converter writes them into GGUF.
	{"qwen3", "json as gguf", "qwen2"}, {"deepseek-v3", "json as gguf", "deepseek-v3"}, {"gpt-oss", "json as gguf", "gpt-4o"},
	{"mistral-v1", "model as gguf", ""}, {"tekken", "tekken as json", ""},
	{"llama-spm", "model as json", ""}, {"mistral-v1", "model as json", ""},
}

// file is where the data has the source.
func (s source) file() string {
	switch form, _, _ := strings.Cut(s.form, " "); form {
	case "gguf":
		return "gguf/" + s.vocab + ".gguf.gz"
	case "json":
		return "hf/" + s.vocab + ".tokenizer.json.gz"
	case "tekken":
		return "hf/tekken.json.gz"
	}
	return "spm/" + s.vocab + ".model"
}

// there are the sources whose files are there: all of the larger set, or of those the ones that travel.
func there(t testing.TB, list []source) []source {
	t.Helper()
	list = slices.DeleteFunc(slices.Clone(list), func(s source) bool {
		_, ok := testkit.Lookup(t, "tokenizers/"+s.file())
		return !ok
	})
	if len(list) == 0 {
		t.Skip("reference data: none of the vocabularies of this test is there")
	}
	return list
}

var opened sync.Map // source to *Tokenizer

func (s source) open(t testing.TB) *Tokenizer {
	t.Helper()
	if tok, ok := opened.Load(s); ok {
		return tok.(*Tokenizer)
	}
	var tok *Tokenizer
	var err error
	switch s.form {
	case "gguf":
		tok, err = FromGGUF(readKV(readData(t, s.file())))
	case "json":
		tok, err = FromJSON(readData(t, s.file()), []byte(s.config))
	case "model":
		tok, err = FromSentencePiece(readData(t, s.file()), nil)
	case "tekken":
		tok, err = FromTekken(readData(t, s.file()))
	case "json as gguf":
		tok, err = FromGGUF(jsonAsKV(t, readData(t, s.file()), s.config))
	case "model as gguf":
		tok, err = FromGGUF(modelAsKV(t, readData(t, s.file())))
	case "model as json":
		tok, err = FromJSON(modelAsJSON(t, readData(t, s.file())), nil)
	case "tekken as json":
		tok, err = FromJSON(tekkenAsJSON(t, readData(t, s.file())), nil)
	}
	if err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	if !strings.Contains(s.form, " as ") { // those are used once
		opened.Store(s, tok)
	}
	return tok
}

// jsonAsKV writes a tokenizer.json as GGUF metadata, by the rules of llama.cpp's converter.
func jsonAsKV(t testing.TB, b []byte, pre string) mapKV {
	t.Helper()
	var f struct {
		Model struct {
			Vocab  map[string]int64
			Merges []any
		}
		Added []hfToken `json:"added_tokens"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	n := int64(len(f.Model.Vocab))
	for _, a := range f.Added {
		n = max(n, a.ID+1)
	}
	tokens, types := make([]string, n), make([]int64, n)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), typeUnused
	}
	for text, id := range f.Model.Vocab {
		tokens[id], types[id] = text, typeNormal
	}
	for _, a := range f.Added {
		tokens[a.ID], types[a.ID] = a.Content, typeUserDefined
		if a.Special {
			types[a.ID] = typeControl
		}
	}
	var merges []string
	for _, m := range f.Model.Merges {
		if pair, ok := m.([]any); ok {
			merges = append(merges, pair[0].(string)+" "+pair[1].(string))
		} else {
			merges = append(merges, m.(string))
		}
	}
	kv := mapKV{ggml + "model": "gpt2", ggml + "pre": pre, ggml + "tokens": tokens, ggml + "token_type": types, ggml + "merges": merges}
	if pre == "deepseek-v3" {
		kv[ggml+"bos_token_id"], kv[ggml+"add_bos_token"] = int64(slices.Index(tokens, "<｜begin▁of▁sentence｜>")), true
	}
	return kv
}

func modelAsKV(t testing.TB, b []byte) mapKV {
	t.Helper()
	var m spmModel
	if err := m.parse(b); err != nil {
		t.Fatal(err)
	}
	types := make([]int64, len(m.kind))
	for i, k := range m.kind {
		types[i] = int64(k)
	}
	return mapKV{ggml + "model": "llama", ggml + "tokens": m.text, ggml + "scores": m.scores, ggml + "token_type": types,
		ggml + "bos_token_id": int64(1), ggml + "eos_token_id": int64(2), ggml + "unknown_token_id": int64(0)}
}

// modelAsJSON writes a SentencePiece model as HF's converter does: all pairs of pieces whose joined text is a piece, by score
// of that piece, then by the scores of the parts.
func modelAsJSON(t testing.TB, b []byte) []byte {
	t.Helper()
	var m spmModel
	if err := m.parse(b); err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for i, s := range m.text {
		ids[s] = i
	}
	var merges [][2]string
	order := make([]int, 0, len(m.text))
	for i, k := range m.kind {
		if k == typeNormal {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return -int(math.Copysign(1, float64(m.scores[a]-m.scores[b]))) })
	for _, id := range order {
		text := m.text[id]
		var pairs [][2]string
		for i := 1; i < len(text); i++ {
			_, ok1 := ids[text[:i]]
			_, ok2 := ids[text[i:]]
			if ok1 && ok2 {
				pairs = append(pairs, [2]string{text[:i], text[i:]})
			}
		}
		slices.SortStableFunc(pairs, func(a, b [2]string) int {
			if ids[a[0]] != ids[b[0]] {
				return ids[a[0]] - ids[b[0]]
			}
			return ids[a[1]] - ids[b[1]]
		})
		merges = append(merges, pairs...)
	}
	special := func(id int) map[string]any {
		return map[string]any{"id": id, "content": m.text[id], "special": true}
	}
	out, err := json.Marshal(map[string]any{
		"added_tokens": []any{special(0), special(1), special(2)},
		"normalizer": map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Prepend", "prepend": "▁"},
			map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"}}},
		"pre_tokenizer": nil,
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>"}}, map[string]any{"Sequence": map[string]any{"id": "A"}}},
			"special_tokens": map[string]any{"<s>": map[string]any{"ids": []int{1}}}},
		"model": map[string]any{"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": ids, "merges": merges},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tekkenAsJSON writes tekken.json as a tokenizer.json, its merges rebuilt from the ranks.
func tekkenAsJSON(t testing.TB, b []byte) []byte {
	t.Helper()
	tok, err := fromTekken(string(b), &hfConfig{})
	if err != nil {
		t.Fatal(err)
	}
	chars := make([]string, 256)
	for r, b := range byteOf {
		if b >= 0 {
			chars[b] = string(rune(r))
		}
	}
	encode := func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteString(chars[s[i]])
		}
		return b.String()
	}
	vocab := map[string]int{}
	var merges [][2]string
	var added []any
	for id, s := range tok.text {
		if id < 1000 {
			added = append(added, map[string]any{"id": id, "content": s, "special": true})
			continue
		}
		vocab[encode(s)] = id
		if len(s) < 2 {
			continue
		}
		// The merge of a token joins the two parts that its bytes become by lower ranks alone.
		if parts := tok.partsBelow(s, tok.priority[id]); len(parts) == 2 {
			merges = append(merges, [2]string{encode(parts[0]), encode(parts[1])})
		}
	}
	var c struct{ Config tekkenConfig }
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(map[string]any{
		"added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": c.Config.Pattern}, "behavior": "Isolated"},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>"}}, map[string]any{"Sequence": map[string]any{"id": "A"}}},
			"special_tokens": map[string]any{"<s>": map[string]any{"ids": []int{1}}}},
		"model": map[string]any{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// partsBelow joins the bytes of s by the ranks below limit, the lowest first.
func (t *Tokenizer) partsBelow(s string, limit uint32) []string {
	parts := strings.Split(s, "")
	if !utf8.ValidString(s) || len(parts) != len(s) {
		parts = parts[:0]
		for i := range len(s) {
			parts = append(parts, s[i:i+1])
		}
	}
	for {
		best, at := limit, -1
		for i := 0; i+1 < len(parts); i++ {
			if id := t.findString(parts[i] + parts[i+1]); id >= 0 && t.priority[id] < best {
				best, at = t.priority[id], i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
}

type textCase struct {
	Text         string
	AddSpecial   bool `json:"add_special"`
	ParseSpecial bool `json:"parse_special"`
	IDs          []int32
}

func readCases(t testing.TB, vocab string) []textCase {
	t.Helper()
	var out []textCase
	dec := json.NewDecoder(bytes.NewReader(readData(t, "cases/"+vocab+".jsonl")))
	for dec.More() {
		var c textCase
		if err := dec.Decode(&c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// Every case of every SPM and BPE vocabulary in every form of its file, and llama.cpp's own tests.
func TestCases(t *testing.T) {
	for _, s := range sources {
		t.Run(s.vocab+"/"+strings.ReplaceAll(s.form, " ", "-"), func(t *testing.T) {
			tok := s.open(t)
			cases := readCases(t, s.vocab)
			passed := 0
			for _, c := range cases {
				got := tok.Encode(nil, c.Text, EncodeOptions{c.AddSpecial, c.ParseSpecial})
				if slices.Equal(got, c.IDs) {
					passed++
				} else {
					t.Errorf("%q add %v parse %v:\n got %v\nwant %v", c.Text, c.AddSpecial, c.ParseSpecial, got, c.IDs)
				}
			}
			upstream, all := upstreamCases(t, tok, s.vocab)
			t.Logf("%s from %s: %d/%d cases, upstream %d/%d", s.vocab, s.form, passed, len(cases), upstream, all)
			if len(cases) < 330 {
				t.Errorf("only %d cases", len(cases))
			}
		})
	}
}

func upstreamCases(t *testing.T, tok *Tokenizer, vocab string) (passed, all int) {
	t.Helper()
	if _, ok := testkit.Lookup(t, "tokenizers/upstream/"+vocab+".inp"); !ok {
		return 0, 0
	}
	texts := strings.Split(string(readData(t, "upstream/"+vocab+".inp")), "\n__ggml_vocab_test__\n")
	lines := bufio.NewScanner(bytes.NewReader(readData(t, "upstream/"+vocab+".out")))
	for ; lines.Scan(); all++ {
		var want []int32
		for f := range strings.FieldsSeq(lines.Text()) {
			id, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(id))
		}
		if got := tok.Encode(nil, texts[all], EncodeOptions{}); slices.Equal(got, want) {
			passed++
		} else {
			t.Errorf("upstream %q:\n got %v\nwant %v", texts[all], got, want)
		}
	}
	if all < 46 {
		t.Errorf("only %d upstream cases", all)
	}
	return passed, all
}
