package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ck/internal/gguf"
	"ck/internal/testkit"
)

// put writes files into a folder.
func put(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// throughGGUF makes keys metadata of package gguf, and a tokenizer of that.
func throughGGUF(t testing.TB, keys []Key) *Tokenizer {
	t.Helper()
	kv := gguf.NewModel("").KV
	for _, k := range keys {
		kv.Set(k.Name, k.Value)
	}
	tok, err := FromGGUF(kv)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// folderOf is a folder with the source's file under its usual name.
func (s source) folder(t testing.TB) string {
	t.Helper()
	name := map[string]string{"json": "tokenizer.json", "tekken": "tekken.json", "model": "tokenizer.model",
		"model as json": "tokenizer.json"}[s.form]
	b := readData(t, s.file())
	if s.form == "model as json" {
		b = modelAsJSON(t, b)
	}
	files := map[string]string{name: string(b)}
	if s.config != "" {
		files["tokenizer_config.json"] = s.config
	}
	return put(t, t.TempDir(), files)
}

// Every vocabulary of the data that has a file of Hugging Face's: the keys that are written for it make a tokenizer
// that gives the ids of all cases, and the same text for them.
func TestKeysCases(t *testing.T) {
	pre := map[string]string{"llama-bpe": "llama-bpe", "qwen3": "qwen2", "deepseek-v3": "deepseek-v3",
		"gpt-oss": "gpt-4o", "tekken": "tekken"}
	looks := map[string]int{"qwen3": 2, "deepseek-v3": 4} // cases with such tokens
	tested := 0
	for _, s := range sources {
		if s.form != "json" && s.form != "tekken" && s.form != "model" && s.form != "model as json" {
			continue
		}
		t.Run(s.vocab+"/"+strings.ReplaceAll(s.form, " ", "-"), func(t *testing.T) {
			dir := s.folder(t)
			own, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			keys, notes, err := Keys(dir, own.VocabSize()+3)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, notes: %q", time.Since(start), notes)
			want := pre[s.vocab]
			if got, _, _ := keyList(keys).String(ggml + "pre"); want != "" && got != want {
				t.Errorf("pre is %q, want %q", got, want)
			}
			back := throughGGUF(t, keys)
			if back.VocabSize() != own.VocabSize()+3 {
				t.Errorf("%d tokens, want %d and 3 of padding", back.VocabSize(), own.VocabSize())
			}
			// Added tokens that are not special, but look so, become control tokens, as the converter has it: text
			// does not become them.
			closed := func(ids []int32) bool {
				return slices.ContainsFunc(ids, func(id int32) bool {
					return back.IsControl(id) &&
						!own.IsControl(id)
				})
			}
			for _, c := range readCases(t, s.vocab) {
				if closed(c.IDs) {
					if looks[s.vocab]--; c.ParseSpecial != slices.Equal(back.Encode(nil, c.Text,
						EncodeOptions{c.AddSpecial, c.ParseSpecial}), c.IDs) {
						t.Errorf("%q parse %v: control tokens are not those of trusted text alone", c.Text,
							c.ParseSpecial)
					}
					continue
				}
				got := back.Encode(nil, c.Text, EncodeOptions{c.AddSpecial, c.ParseSpecial})
				if !slices.Equal(got, c.IDs) {
					t.Errorf("%q add %v parse %v:\n got %v\nwant %v", c.Text, c.AddSpecial, c.ParseSpecial, got,
						c.IDs)
				}
				for _, opt := range []DecodeOptions{{}, {Special: true}} {
					if got, want := back.Decode(nil, c.IDs, opt), own.Decode(nil, c.IDs,
						opt); string(got) != string(want) {
						t.Errorf("%v decode to %q, want %q", c.IDs, got, want)
					}
				}
			}
			if looks[s.vocab] != 0 {
				t.Errorf("cases with tokens that look special: %d fewer than expected", looks[s.vocab])
			}
			for id := range int32(own.VocabSize()) {
				if back.IsEOG(id) != own.IsEOG(id) {
					t.Errorf("token %d, %q: IsEOG is %v, want %v", id, own.Piece(id), back.IsEOG(id), own.IsEOG(id))
				}
			}
		})
		tested++
	}
	if tested < 7 {
		t.Errorf("%d vocabularies tested", tested)
	}
}

// edited is tinyBytes with replacements, old and new in turn.
func edited(t testing.TB, pairs ...string) string {
	t.Helper()
	s := tinyBytes
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(s, pairs[i]) {
			t.Fatalf("%q is not in the file", pairs[i])
		}
		s = strings.Replace(s, pairs[i], pairs[i+1], 1)
	}
	return s
}

// tinyBytes is a byte-level tokenizer.json with the pre-tokenizer of Qwen2; U+0120 stands for a space. Ids 4 and 9
// are left out.
const tinyBytes = `{"added_tokens":[{"id":5,"content":"<s>","special":true},{"id":6,"content":"</s>","special":true},{"id":7,"content":"<u> x","special":false},
	{"id":8,"content":"<|fim|>","special":false},{"id":10,"content":"<pad>","special":false},{"id":11,"content":"<x>","special":true}],
	"normalizer":null,
	"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":` +
	`"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},` +
	`{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
	"post_processor":null,
	"model":{"type":"BPE","ignore_merges":false,"vocab":{"a":0,"b":1,"Ġ":2,"Ġa":3,"ab":12},"merges":["Ġ a"]}}`

// keyTest is a folder and what is expected of its keys; nil: that there is no such key.
type keyTest struct {
	name  string
	files map[string]string
	vocab int
	want  map[string]any
	notes []string // what is said in each
}

func (c *keyTest) run(t *testing.T) {
	dir := put(t, t.TempDir(), c.files)
	keys, notes, err := Keys(dir, c.vocab)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]any{}
	for _, k := range keys {
		if have[k.Name] != nil {
			t.Errorf("%s is there twice", k.Name)
		}
		have[k.Name] = k.Value
	}
	for k, want := range c.want {
		if !strings.HasPrefix(k, "tokenizer.") {
			k = ggml + k
		}
		if got := have[k]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %T %v, want %T %v", k, got, got, want, want)
		}
	}
	if len(notes) != len(c.notes) {
		t.Fatalf("notes %q, want %q", notes, c.notes)
	}
	for i, n := range notes {
		if !strings.Contains(n, c.notes[i]) {
			t.Errorf("note %q, want %q", n, c.notes[i])
		}
	}
	throughGGUF(t, keys)
}

// keyTests is what stands in the files beside the vocabulary, and tokens of each type.
func keyTests(t *testing.T) []keyTest {
	const (
		post   = `"post_processor":null`
		before = `{"SpecialToken":{"id":"<s>"}}`
		text   = `{"Sequence":{"id":"A"}}`
		behind = `{"SpecialToken":{"id":"</s>"}}`
		ids    = `"special_tokens":{"<s>":{"ids":[5]},"</s>":{"ids":[6]}}`
	)
	template := func(items ...string) string {
		return edited(t, post, `"post_processor":{"type":"TemplateProcessing","single":[`+strings.Join(items,
			",")+`],`+ids+`}`)
	}
	return []keyTest{
		{"plain", map[string]string{"tokenizer.json": tinyBytes}, 14, map[string]any{
			"model": "gpt2", "pre": "qwen2", "merges": []string{"Ġ a"}, "scores": nil, "add_space_prefix": nil,
			"tokens": []string{"a", "b", "Ġ", "Ġa", "[PAD4]", "<s>", "</s>", "<u> x", "<|fim|>", "[PAD9]",
				"<pad>", "<x>", "ab", "[PAD13]"},
			"token_type":   []int32{1, 1, 1, 1, 5, 3, 3, 4, 3, 5, 3, 3, 1, 5},
			"bos_token_id": uint32(5), "eos_token_id": uint32(6), "padding_token_id": nil, "add_bos_token": false,
			"add_eos_token": false}, nil},
		{"named", map[string]string{"tokenizer.json": tinyBytes,
			"tokenizer_config.json": `{"bos_token":"<x>","eos_token":{"content":"<s>"},"unk_token":"<|fim|>","pad_token":"<pad>","sep_token":"<u> x","mask_token":"none","add_eos_token":true}`},
			0, map[string]any{"bos_token_id": uint32(11), "eos_token_id": uint32(5), "unknown_token_id": uint32(8),
				"padding_token_id":   uint32(10),
				"seperator_token_id": uint32(7), "mask_token_id": nil, "add_bos_token": false, "add_eos_token": true},
			nil},
		{"older files", map[string]string{"tokenizer.json": tinyBytes, "tokenizer_config.json": `{"eos_token":null}`,
			"special_tokens_map.json": `{"bos_token":{"content":"</s>"},"eos_token":"<x>","pad_token":"<x>"}`},
			0, map[string]any{"bos_token_id": uint32(6), "eos_token_id": uint32(11), "padding_token_id": uint32(11)},
			nil},
		{"config.json", map[string]string{"tokenizer.json": strings.ReplaceAll(tinyBytes, "s>", "z>"),
			"config.json": `{"bos_token_id":0,"eos_token_id":[1,2],"pad_token_id":-1,"unk_token_id":99,"sep_token_id":12}`},
			0, map[string]any{"bos_token_id": uint32(0), "eos_token_id": nil, "padding_token_id": nil,
				"unknown_token_id": nil, "seperator_token_id": uint32(12)}, nil},
		{"around a text", map[string]string{"tokenizer.json": template(before, text, behind),
			"tokenizer_config.json": `{"eos_token":"<x>"}`},
			0, map[string]any{"bos_token_id": uint32(5), "eos_token_id": uint32(6), "eot_token_id": uint32(11),
				"add_bos_token": true, "add_eos_token": true}, nil},
		{"ends", map[string]string{"tokenizer.json": tinyBytes,
			"generation_config.json": `{"eos_token_id":[6,11,10,8,1]}`},
			0, map[string]any{"eos_token_id": uint32(6), "eot_token_id": uint32(8), "eom_token_id": uint32(10)},
			[]string{`token 1, "b", is an ordinary word`, `no key left for token 11, "<x>"`}},
		{"normalizer", map[string]string{"tokenizer.json": edited(t, `"normalizer":null`,
			`"normalizer":{"type":"NFC"}`)}, 0, nil, []string{"NFC is left out"}},
		{"merges", map[string]string{"tokenizer.json": edited(t, `["Ġ a"]`, `[["Ġ","a"],["a"," b"],[" a","b"]]`)}, 0,
			map[string]any{"merges": []string{"Ġ a", "a Ġb", "Ġa b"}}, nil},
		{"beyond the rows", map[string]string{"tokenizer.json": edited(t, `,"ab":12`, ``)}, 11,
			map[string]any{"bos_token_id": uint32(5)}, []string{`"<x>" has the id 11`}},
		{"ignore_merges without effect", map[string]string{"tokenizer.json": edited(t, `,"ab":12`, ``,
			`"ignore_merges":false`, `"ignore_merges":true`)}, 0,
			map[string]any{"pre": "qwen2"}, nil},
		{"ignore_merges", map[string]string{"tokenizer.json": edited(t, `"ignore_merges":false`,
			`"ignore_merges":true`)}, 0,
			map[string]any{"pre": "qwen2"}, []string{`it matters for 1 tokens, "ab" for one`}},
		{"templates", map[string]string{"tokenizer.json": tinyBytes,
			"tokenizer_config.json":               `{"chat_template":[{"name":"default","template":"D"},{"name":"tool-use","template":"T"}]}`,
			"additional_chat_templates/rag.jinja": "R"}, 0, map[string]any{"tokenizer.chat_template": "D",
			"tokenizer.chat_template.tool_use": "T",
			"tokenizer.chat_template.rag":      "R", "tokenizer.chat_template.default": nil,
			"tokenizer.chat_templates": []string{"rag", "tool_use"}}, nil},
		{"template files", map[string]string{"tokenizer.json": tinyBytes,
			"tokenizer_config.json": `{"chat_template":"C"}`, "chat_template.json": `{"chat_template":"J"}`,
			"chat_template.jinja": "F"}, 0, map[string]any{"tokenizer.chat_template": "F",
			"tokenizer.chat_templates": nil}, nil},
		{"tekken", map[string]string{"tekken.json": withPattern(t, tinyTekken)}, 6, map[string]any{"model": "gpt2",
			"pre": "tekken", "add_bos_token": true,
			"tokens": []string{"<s>", "</s>", "a", "b", "ab", "[PAD5]"}, "token_type": []int32{3, 3, 1, 1, 1, 5},
			"merges": []string{"a b"}}, nil},
		{"SentencePiece", map[string]string{"tokenizer.model": string(tinyModel()),
			"added_tokens.json":     `{"<new>":12,"<|new|>":11}`,
			"tokenizer_config.json": `{"added_tokens_decoder":{"12":{"content":"<▁>","special":false}},"add_prefix_space":false}`}, 14,
			map[string]any{"model": "llama", "pre": "default", "merges": nil, "add_space_prefix": false,
				"add_bos_token": true, "add_eos_token": false,
				"tokens": []string{"<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "abb", "<u>", "<0x41>",
					"<|new|>", "< >", "[PAD13]"},
				"token_type":   []int32{2, 3, 3, 1, 1, 1, 1, 5, 1, 4, 6, 3, 4, 5},
				"scores":       []float32{-8, -9, -10, -11, -12, -13, -14, -15, -16, -18, -20, -1000, -1000, -10000},
				"bos_token_id": uint32(1), "eos_token_id": uint32(2), "unknown_token_id": uint32(0)}, nil},
		{"character map", map[string]string{"tokenizer.model": string(tinyModel()) +
			"\x1a\x0e\x20\x01\x12\x08\x04\x00\x00\x00\x00\x00\x00\x00\x18\x01"}, 0,
			map[string]any{"precompiled_charsmap": []byte{4, 0, 0, 0, 0, 0, 0, 0}, "remove_extra_whitespaces": true,
				"add_space_prefix": true},
			[]string{"precompiled_charsmap: llama.cpp"}},
	}
}

func TestKeys(t *testing.T) {
	for _, c := range keyTests(t) {
		t.Run(c.name, c.run)
	}
}

// withPattern gives a tekken.json the pattern of the name tekken.
func withPattern(t testing.TB, file string) string {
	t.Helper()
	var f map[string]any
	if err := json.Unmarshal([]byte(file), &f); err != nil {
		t.Fatal(err)
	}
	f["config"].(map[string]any)["pattern"] = exprTekken
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// refused is a folder whose keys cannot be made, with what the error says.
var refused = []struct {
	name  string
	files func(t testing.TB) map[string]string
	vocab int
	is    error // nil: any
	says  []string
}{
	{"nothing", func(t testing.TB) map[string]string { return map[string]string{"config.json": "{}"} }, 0, ErrNoFiles,
		[]string{"tokenizer.json", "tekken.json", "tokenizer.model"}},
	{"an unknown pattern", jsonWith(`\\p{N}|`, `\\p{N}{1,4}|`), 0, ErrUnsupported,
		[]string{"tokenizer.json: pre_tokenizer: ", `\\p{N}{1,4}|`, "tokenizer.ggml.pre"}},
	{"another behaviour", jsonWith(`"Isolated"`, `"Removed"`), 0, ErrUnsupported,
		[]string{"tokenizer.json: pre_tokenizer: "}},
	{"a space before the text", jsonWith(`"add_prefix_space":false`, `"add_prefix_space":true`,
		`{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":`,
		`{"type":"ByteLevel"},"x":{"y":[{"z":{"Regex":`), 0, ErrUnsupported,
		[]string{"tokenizer.json: pre_tokenizer: ByteLevel with add_prefix_space"}},
	{"a normalizer", jsonWith(`"normalizer":null`, `"normalizer":{"type":"Lowercase"}`), 0, ErrUnsupported,
		[]string{"tokenizer.json: normalizer"}},
	{"two tokens before a text", jsonWith(`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],
		"special_tokens":{"<s>":{"ids":[5]}}}`), 0, ErrUnsupported, []string{"post_processor: puts 2 tokens before"}},
	{"more tokens than rows", jsonWith(), 10, nil, []string{"13 tokens", "10 rows", "different models"}},
	{"no row for BOS", jsonWith(`,"ab":12`, ""), 5, nil, []string{"bos_token_id is 5", "5 rows"}},
	{"no such vocabulary", jsonWith(), maxTokens + 1, nil, []string{"vocab_size"}},
	{"half a file", func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.json": tinyBytes[:len(tinyBytes)/2]}
	}, 0, nil, []string{"tokenizer.json: offset"}},
	{"characters", jsonWith(`"ByteLevel"`, `"Digits"`), 0, ErrUnsupported,
		[]string{"tokenizer.json: model BPE over characters"}},
	{"BOS of another model", also(jsonWith(), "tokenizer_config.json", `{"bos_token":"<begin>"}`), 0, nil,
		[]string{"tokenizer_config.json: bos_token: ", "<begin>"}},
	{"EOS of another model", also(jsonWith(), "generation_config.json", `{"eos_token_id":77}`), 0, nil,
		[]string{"generation_config.json: eos_token_id: is 77"}},
	{"damaged special_tokens_map.json", also(jsonWith(), "special_tokens_map.json", `{"bos_token":3}`), 0, nil,
		[]string{"special_tokens_map.json: bos_token: is of type number"}},
	{"damaged added_tokens.json", also(jsonWith(), "added_tokens.json", `{"<x>":"3"}`), 0, nil,
		[]string{"added_tokens.json: ", "is of type string, wanted an integer"}},
	{"damaged chat_template.json", also(jsonWith(), "chat_template.json", `{"chat_template":3}`), 0, nil,
		[]string{"chat_template.json: chat_template is neither"}},
	{"damaged config.json", also(jsonWith(), "config.json", `{"eos_token_id":`), 0, nil,
		[]string{"config.json: unexpected end"}},
	{"a vocabulary of two models", func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.model": string(tinyModel()), "tokenizer.json": tinyScored(`"b":4,"a":5`)}
	}, 0, nil, []string{`tokenizer.json: tokenizer.model beside it: token 4 is "a", and "b" in tokenizer.json`,
		"different models"}},
	{"a longer vocabulary", func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.model": string(tinyModel()),
			"tokenizer.json": tinyScored(`"a":4,"b":5,"more":11`)}
	}, 0, nil, []string{`tokenizer.model beside it: it has 11 tokens, and token 11 is "more" in tokenizer.json`}},
	{"merges that are no scores", func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.json": strings.Replace(tinyScored(`"a":4,"b":5,"ab":6,"bb":7,"abb":8`),
			`"merges":[]`, `"merges":["a b","b b","ab b"]`, 1)}
	}, 0, ErrUnsupported, []string{`tokenizer.json: model: merges: "a" and "bb" make a token`,
		"tokenizer.model is missing"}},
	{"an unknown pattern beside tokenizer.model", also(jsonWith(`\\p{N}|`, `\\p{N}{1,4}|`), "tokenizer.model",
		string(tinyModel())), 0, ErrUnsupported,
		[]string{"tokenizer.json: pre_tokenizer: "}},
	{"a pre-tokenizer over characters", func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.json": strings.Replace(tinyScored(`"a":4,"b":5`), `"pre_tokenizer":null`,
			`"pre_tokenizer":{"type":"Digits"}`, 1)}
	}, 0, ErrUnsupported, []string{`tokenizer.json: pre_tokenizer: Digits`}},
}

// tinyScored is a tokenizer.json of the kind that SentencePiece makes, with some tokens of ids from 4 on.
func tinyScored(tokens string) string {
	return `{"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],
	"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"pre_tokenizer":null,
	"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,"vocab":{"<unk>":0,"<s>":1,"</s>":2,"▁":3,` + tokens + `},"merges":[]}}`
}

func jsonWith(pairs ...string) func(testing.TB) map[string]string {
	return func(t testing.TB) map[string]string {
		return map[string]string{"tokenizer.json": edited(t, pairs...)}
	}
}

func also(files func(testing.TB) map[string]string, name, text string) func(testing.TB) map[string]string {
	return func(t testing.TB) map[string]string {
		m := files(t)
		m[name] = text
		return m
	}
}

// What keys cannot hold, and what is damaged, is an error that names the file and the key.
func TestKeysRefused(t *testing.T) {
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			keys, _, err := Keys(put(t, t.TempDir(), c.files(t)), c.vocab)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("error %v, keys %.300v", err, keys)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q, want it to say %q", err, s)
				}
			}
		})
	}
}

// Each name for pre-tokenizers is found by its own expressions; those whose expressions are another's are found by
// that name.
func TestFindPre(t *testing.T) {
	same := map[string]string{"chatglm-bpe": "dbrx"}
	for i := range preTypes {
		p := &preTypes[i]
		if p.chars {
			continue
		}
		steps, err := splitAtAll(p.exprs)
		if err != nil {
			t.Fatal(err)
		}
		tok := &Tokenizer{steps: steps, ignoreMerges: p.ignoreMerges}
		want := p.name()
		if s, ok := same[want]; ok {
			want = s
		}
		if got, note, err := tok.findPre(); got != want || note != "" || err != nil {
			t.Errorf("%s is found as %q, %q, %v", p.name(), got, note, err)
		}
	}
	// What differs from an expression in one place is another one.
	for _, c := range []struct{ expr, old, new string }{
		{exprQwen2, `\p{L}+`, `[\p{L}\p{M}]+`}, {exprQwen2, `\p{N}|`, `\p{N}+|`}, {exprLlama3, `{1,3}`, `{1,2}`},
		{exprLlama3, `|\s+(?!\S)`, ``}, {exprGPT2, `'m`, `'n`},
		{exprGPT2, ` ?\p{N}+`, ` ?[0-9]+`}, {exprGPT4o, `[\r\n/]*`, `[\r\n]*`}, {exprTekken, `\p{Lt}`, ``},
		{exprDeepSeek, `\p{S}`, `\p{Sm}`}, {exprBloom, `۔`, ``},
		{exprQwen2, `\r\n\p{L}`, `\n\p{L}`}, {exprLlama3, `(?i:`, `(?:`},
	} {
		if !strings.Contains(c.expr, c.old) {
			t.Fatalf("%q is not in %q", c.old, c.expr)
		}
		steps, err := splitAtAll([]string{strings.Replace(c.expr, c.old, c.new, 1)})
		if err != nil {
			t.Fatal(err)
		}
		tok := &Tokenizer{steps: steps}
		if got, note, err := tok.findPre(); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q for %q is found as %q, %q, %v", c.new, c.old, got, note, err)
		}
	}
}

// A folder whose scores are made from merges gives the tokenizer that tokenizer.model gives.
func TestScoresFromMerges(t *testing.T) {
	for _, name := range []string{"llama-spm-tied", "stories260K"} {
		from := testkit.Data(t, "models/"+name+"/hf")
		files := map[string]string{}
		for _, f := range []string{"tokenizer.json", "tokenizer_config.json", "tokenizer.model"} {
			b, err := os.ReadFile(filepath.Join(from, f))
			if err != nil {
				t.Fatal(err)
			}
			files[f] = string(b)
		}
		var toks []*Tokenizer
		for range 2 {
			keys, notes, err := Keys(put(t, t.TempDir(), files), 0)
			if err != nil || len(notes) > 0 {
				t.Fatalf("%s: %v, notes %q", name, err, notes)
			}
			toks = append(toks, throughGGUF(t, keys))
			delete(files, "tokenizer.model")
		}
		text := english(t, 100_000)
		a, b := toks[0].Encode(nil, text, EncodeOptions{AddSpecial: true}), toks[1].Encode(nil, text,
			EncodeOptions{AddSpecial: true})
		if !slices.Equal(a, b) {
			t.Errorf("%s: %d ids with tokenizer.model, %d without, or others", name, len(a), len(b))
		}
	}
}

// Tokens whose merges are mixed have the same score; the others the scores of their merges' order.
func TestScoresOfMixedMerges(t *testing.T) {
	file := strings.Replace(tinyScored(`"a":4,"b":5,"ab":6,"ba":7,"aba":8,"bab":9,"abaa":10`), `"merges":[]`,
		`"merges":["a b","b a","ab a","ba b","a ba","b ab","aba a"]`, 1)
	keys, _, err := Keys(put(t, t.TempDir(), map[string]string{"tokenizer.json": file}), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{-1000, -1000, -1000, -5, -5, -5, -1, -2, -3, -3, -4}
	if got, _, _ := keyList(keys).Float32s(ggml + "scores"); !slices.Equal(got, want) {
		t.Errorf("scores %v, want %v", got, want)
	}
}

func FuzzKeys(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add([]byte(tinyBytes),
		[]byte(`{"bos_token":"<s>","add_bos_token":true,"chat_template":[{"name":"a","template":"b"}]}`), []byte(nil),
		[]byte(`{"eos_token_id":[1,8]}`), 15)
	f.Add([]byte(tinyScored(`"a":4,"b":5`)), []byte(`{"added_tokens_decoder":{"3":{"content":"<new>"}}}`),
		tinyModel(), []byte(`{"pad_token_id":2}`), 0)
	f.Add([]byte(nil), []byte(`{"eos_token":"</s>"}`), tinyModel(), []byte(`{}`), 11)
	f.Fuzz(func(t *testing.T, vocabulary, config, model, generation []byte, n int) {
		dir := t.TempDir()
		for name, b := range map[string][]byte{"tokenizer.json": vocabulary, "tokenizer_config.json": config,
			"tokenizer.model":        model,
			"generation_config.json": generation, "config.json": generation} {
			if len(b) > 0 {
				put(t, dir, map[string]string{name: string(b)})
			}
		}
		if n > 1<<16 {
			return
		}
		if keys, _, err := Keys(dir, n); err == nil {
			exercise(t, throughGGUF(t, keys))
		}
	})
}
