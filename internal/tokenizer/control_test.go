package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// ended is a vocabulary in each kind of file whose names of turns are typed as words that are cut from any text, as real files do.
func ended(t *testing.T) map[string]*Tokenizer {
	t.Helper()
	must := func(tok *Tokenizer, err error) *Tokenizer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	texts := []string{"<unk>", "<s>", "</s>", "a", "b", "<|im_end|>", "<end_of_turn>", "<|user|>", "<", ">", "|", "i", "m", "_", "e", "n", "d", "t", "u", "r", "o", "f", "/", "s"}
	types := []int64{2, 3, 3, 1, 1, 4, 4, 4}
	for len(types) < len(texts) {
		types = append(types, 1)
	}
	gguf := func(more mapKV) *Tokenizer {
		kv := mapKV{ggml + "model": "llama", ggml + "tokens": texts, ggml + "scores": make([]float32, len(texts)), ggml + "token_type": types,
			ggml + "add_space_prefix": false}
		for k, v := range more {
			kv[k] = v
		}
		return must(FromGGUF(kv))
	}
	return map[string]*Tokenizer{
		"gguf": gguf(nil),
		"gguf, gpt2": gguf(mapKV{ggml + "model": "gpt2", ggml + "merges": []string{"a b"}, ggml + "pre": "llama-bpe",
			ggml + "bos_token_id": int64(1), ggml + "eos_token_id": int64(2)}),
		"tokenizer.json": must(FromJSON([]byte(`{"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":1,"content":"</s>","special":true},
			{"id":2,"content":"<|im_end|>","special":false},{"id":3,"content":"<end_of_turn>","special":false,"rstrip":true},{"id":4,"content":"<|user|>","special":false}],
			"model":{"type":"BPE","ignore_merges":true,"vocab":{"<s>":0,"</s>":1,"<|im_end|>":2,"a":5,"b":6,"<":7,"|":8,"i":9,"m":10,"_":11,"e":12,"n":13,"d":14,">":15,
			"o":16,"f":17,"t":18,"u":19,"r":20,"/":21,"s":22},"merges":[]}}`), []byte(`{"bos_token":"<s>","eos_token":"</s>"}`))),
		"tokenizer.model": must(FromSentencePiece(tinyModel(), []byte(`{"added_tokens_decoder":{"11":{"content":"<|im_end|>"},"12":{"content":"<end_of_turn>"},
			"13":{"content":"<|user|>"}}}`))),
		"tekken.json": must(FromTekken([]byte(`{"config":{"pattern":"\\w+|\\W+","default_vocab_size":8,"default_num_special_tokens":5},
			"special_tokens":[{"rank":0,"token_str":"<s>","is_control":true},{"rank":1,"token_str":"</s>","is_control":true},
			{"rank":2,"token_str":"<|im_end|>","is_control":false},{"rank":3,"token_str":"<end_of_turn>","is_control":false},{"rank":4,"token_str":"<|user|>","is_control":false}],
			"vocab":[{"rank":0,"token_bytes":"YQ==","token_str":"a"},{"rank":1,"token_bytes":"Yg==","token_str":"b"},{"rank":2,"token_bytes":"YWI=","token_str":"ab"}]}`))),
	}
}

// The names of ends of turns are control tokens in every kind of file, whatever type the file gives them: text never becomes one, a
// template's own text does, and it ends a generation.
func TestEndsOfTurns(t *testing.T) {
	for name, tok := range ended(t) {
		for _, end := range []string{"<|im_end|>", "<end_of_turn>", "</s>"} {
			id, ok := tok.TokenID(end)
			if !ok || !tok.IsControl(id) || !tok.IsEOG(id) {
				t.Errorf("%s: %s is %d, %v: control %v, end %v", name, end, id, ok, tok.IsControl(id), tok.IsEOG(id))
			}
			text := "a" + end + "b"
			if ids := tok.Encode(nil, text, EncodeOptions{}); slices.ContainsFunc(ids, tok.IsEOG) {
				t.Errorf("%s: %q as text is %v with the end %d", name, text, ids, id)
			}
			if ids := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true}); !slices.Contains(ids, id) {
				t.Errorf("%s: %q with special tokens is %v without %d", name, text, ids, id)
			}
		}
		if id, ok := tok.TokenID("<|user|>"); !ok || tok.IsEOG(id) {
			t.Errorf("%s: <|user|> is %d, %v: an end", name, id, ok)
		}
	}
}

// Ids that a file names as ends are control tokens too, though it types them as words; the same names are text where they are words
// and no id names them.
func TestEndsByID(t *testing.T) {
	texts := []string{"<unk>", "<s>", "</s>", "a", "b", "<stop>", "<|im_end|>", "<|end|>"}
	kv := mapKV{ggml + "model": "llama", ggml + "tokens": texts, ggml + "scores": make([]float32, len(texts)),
		ggml + "token_type": []int64{2, 3, 3, 1, 1, 4, 1, 1}, ggml + "eot_token_id": int64(5), ggml + "eom_token_id": int64(7), ggml + "add_space_prefix": false}
	tok, err := FromGGUF(kv)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int32]bool{2: true, 3: false, 5: true, 6: false, 7: true} {
		if tok.IsControl(id) != want || tok.IsEOG(id) != want {
			t.Errorf("%s: control %v, end %v, expected %v", texts[id], tok.IsControl(id), tok.IsEOG(id), want)
		}
		ids := tok.Encode(nil, texts[id], EncodeOptions{ParseSpecial: true})
		if want && !slices.Equal(ids, []int32{id}) {
			t.Errorf("%s with special tokens: %v", texts[id], ids)
		}
		if ids = tok.Encode(nil, texts[id], EncodeOptions{}); want && slices.Contains(ids, id) {
			t.Errorf("%s as text: %v", texts[id], ids)
		}
	}
}

// No vocabulary of the data lets text become a control token, alone or inside other text.
func TestNoControlFromText(t *testing.T) {
	for _, s := range there(t, sources) {
		tok := s.open(t)
		for id := range int32(tok.VocabSize()) {
			if !tok.IsControl(id) || tok.Piece(id) == "" {
				continue
			}
			for _, text := range []string{tok.Piece(id), "a" + tok.Piece(id) + "b", strings.ReplaceAll(tok.Piece(id), escapedSpace, " ")} {
				for _, got := range tok.Encode(nil, text, EncodeOptions{}) {
					if tok.IsControl(got) && got != tok.unknown {
						t.Fatalf("%v: the text %q gives the control token %d", s, text, got)
					}
				}
			}
		}
	}
}
