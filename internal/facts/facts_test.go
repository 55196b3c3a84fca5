package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/quant"
	"ck/internal/testkit"
)

func of(t *testing.T, m *inspect.Model, opt Options) *Facts {
	t.Helper()
	var err error
	if opt.Chosen == nil {
		if opt.Chosen, err = m.Chosen(nil); err != nil {
			t.Fatal(err)
		}
	}
	opt.Workers = max(1, opt.Workers)
	f, err := Of(t.Context(), m, opt)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The figures of a model are those that follow from its shapes by hand; sums of tensors are those of the file's bytes.
func TestFigures(t *testing.T) {
	path := testkit.Data(t, "models/stories260K/model.gguf")
	m, err := inspect.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	total := int64(0)
	f := of(t, m, Options{Hash: true, Workers: 3, Context: 100, At: func(n int64) { total = max(total, n) }})
	// 5 layers of 64 × (64 + 32 + 32 + 64) and 3 × 64 × 172, norms of 64; 512 tokens.
	params := int64(5*(64*192+3*64*172+128) + 64 + 512*64)
	if f.Params != params || f.Active != params || f.Embedding != 512*64 || f.Layers != 5 || f.BitsPer != 32 || f.Form != "GGUF" || f.Architecture != "llama" {
		t.Errorf("%+v", f)
	}
	if total != 4*params {
		t.Errorf("progress ends at %d of %d bytes", total, 4*params)
	}
	// Keys (8 numbers, with room for 16) and values of 4 heads in 5 layers, two bytes each.
	if r := f.Run; r == nil || r.Context != 100 || r.KVPosition != 5*4*(16+8)*2 {
		t.Errorf("%+v", r)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, x := range f.Tensors {
		b := sha256.Sum256(whole[x.Offset:][:x.Bytes])
		if x.SHA256 != hex.EncodeToString(b[:]) {
			t.Errorf("%s: %s", x.Name, x.SHA256)
		}
		sum += x.Bytes
	}
	if sum != 4*params || len(f.Tensors) != 48-1 {
		t.Errorf("%d tensors of %d bytes", len(f.Tensors), sum)
	}
	for _, g := range [][]Group{f.Classes, f.Types} {
		n, b := int64(0), int64(0)
		for _, x := range g {
			n, b = n+x.Params, b+x.Bytes
		}
		if n != params || b != 4*params {
			t.Errorf("%+v add up to %d and %d", g, n, b)
		}
	}
	if k := f.Tokenizer; k == nil || k.Tokens != 512 || k.ByType["byte"] != 256 || *k.BOS != 1 || *k.EOS != 2 || !k.AddsBOS || k.AddsEOS {
		t.Errorf("%+v", k)
	}
}

// A token of a mixture uses the experts that the file says.
func TestActive(t *testing.T) {
	m := &inspect.Model{Model: gguf.NewModel("test")}
	m.KV.Set("general.architecture", "qwen3moe")
	m.KV.Set("qwen3moe.expert_count", uint32(8))
	m.KV.Set("qwen3moe.expert_used_count", uint32(2))
	for name, shape := range map[string][]int{"blk.0.ffn_up_exps.weight": {32, 16, 8}, "blk.0.attn_q.weight": {32, 32}} {
		n := 1
		for _, s := range shape {
			n *= s
		}
		if err := m.Add(&gguf.Tensor{Name: name, Type: quant.Q8_0, Shape: shape, Data: make([]byte, n/32*34), File: -1}); err != nil {
			t.Fatal(err)
		}
	}
	f := of(t, m, Options{})
	if f.Params != 32*16*8+1024 || f.Active != 32*16*2+1024 || f.BitsPer != 8.5 || f.Run != nil || f.NoRun == "" || f.NoTokenizer == "" {
		t.Errorf("%+v", f)
	}
}

// Metadata that JSON has no word for is written as words; bytes are numbers, not base64.
func TestPlain(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{{float32(math.NaN()), `"NaN"`}, {math.Inf(1), `"+Inf"`}, {[]uint8{1, 2}, "[1,2]"}, {[]float32{1, float32(math.Inf(-1))}, `[1,"-Inf"]`},
		{[]float64{0.5}, "[0.5]"}, {"x", `"x"`}, {[]string{"a"}, `["a"]`}, {true, "true"}, {nil, "null"}} {
		if b, err := json.Marshal(plain(c.in)); err != nil || string(b) != c.want {
			t.Errorf("%v: %s, %v, want %s", c.in, b, err, c.want)
		}
	}
}

// Words name ids, tokens, and texts that are cut.
func TestLookup(t *testing.T) {
	m, err := inspect.Open(filepath.Join(testkit.Data(t, "models/stories260K"), "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	v, err := VocabularyOf(m.KV)
	if err != nil || v.Len() != 512 || v.Why != nil {
		t.Fatal(err, v.Len())
	}
	ids := func(word string, text bool) (list []int32) {
		found, err := v.Lookup(word, text)
		if err != nil {
			t.Errorf("%q: %v", word, err)
		}
		for _, x := range found {
			list = append(list, x.ID)
		}
		return list
	}
	if got := ids("13", false); !reflect.DeepEqual(got, []int32{13}) {
		t.Error(got)
	}
	if got := ids("▁Once", false); !reflect.DeepEqual(got, []int32{403}) {
		t.Error(got)
	}
	if got := ids("Once upon", false); !reflect.DeepEqual(got, []int32{403, 407}) {
		t.Error(got)
	}
	if got := ids("13", true); len(got) == 1 && got[0] == 13 {
		t.Error(got)
	}
	for _, word := range []string{"512", "-1"} {
		if _, err := v.Lookup(word, false); err == nil {
			t.Errorf("%s is found", word)
		}
	}
	if x := v.Token(13); x.Text != "\n" || x.Type != "byte" || x.Piece != "<0x0A>" || x.Score == nil {
		t.Errorf("%+v", x)
	}
	if _, err := VocabularyOf(gguf.NewModel("none").KV); err != ErrNoVocabulary {
		t.Error(err)
	}
}
