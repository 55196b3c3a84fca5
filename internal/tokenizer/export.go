package tokenizer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// exportJSON exports a tokenizer.json: byte-level BPE as it is, the kind that SentencePiece makes by tokenizer.model
// where that is.
func exportJSON(b []byte, dir string, c *hfConfig) (*export, error) {
	f, err := parseJSON(string(b))
	var t *Tokenizer
	if err == nil {
		t, err = f.tokenizer(c)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	x := &export{t: t, file: "tokenizer.json"}
	x.fill = func() error {
		if t.form == formBytes {
			return x.fillBytes(f)
		}
		return x.fillScored(f, dir, c)
	}
	return x, nil
}

// fillBytes takes a byte-level tokenizer.
func (x *export) fillBytes(f *hfFile) error {
	x.model = "gpt2"
	if x.t.prefix != prefixNever {
		return fmt.Errorf("pre_tokenizer: ByteLevel with add_prefix_space, which GGUF has no key for: %w",
			ErrUnsupported)
	}
	for _, n := range x.t.normal {
		if n.form == nil || *n.form != norm.NFC {
			return fmt.Errorf("normalizer: GGUF has no key for it: %w", ErrUnsupported)
		}
		x.note("normalizer: NFC is left out, for which GGUF has no key: texts that are not in this form become other tokens")
	}
	if err := x.takePre(); err != nil {
		return err
	}
	x.take(x.t)
	for i := 0; i < len(f.model.merges); i += 2 {
		x.merges = append(x.merges, joinMerge(f.model.merges[i], f.model.merges[i+1]))
	}
	return nil
}

// joinMerge writes a merge. Spaces in its parts are written as the byte-level alphabet does.
func joinMerge(left, right string) string {
	return strings.ReplaceAll(left, " ", "Ġ") + " " + strings.ReplaceAll(right, " ", "Ġ")
}

// fillScored takes a tokenizer whose merges follow from scores.
func (x *export) fillScored(f *hfFile, dir string, c *hfConfig) error {
	if !x.t.escape || !f.model.byteFallback || len(x.t.normal) > 0 {
		return fmt.Errorf("model BPE over characters: GGUF has it with byte_fallback and U+2581 for spaces, and without "+
			"other normalizers: %w", ErrUnsupported)
	}
	b, err := readOptional(filepath.Join(dir, "tokenizer.model"), maxVocabFile)
	if err != nil {
		return err
	}
	if b != nil {
		if err := x.fillBoth(f, b, c); err != nil {
			return fmt.Errorf("tokenizer.model beside it: %w", err)
		}
		return nil
	}
	x.model, x.pre = "llama", "default"
	if x.scores, err = f.scores(x.t); err == nil {
		x.take(x.t)
	}
	return err
}

// fillBoth takes a tokenizer.json and the tokenizer.model that it was made of.
func (x *export) fillBoth(f *hfFile, model []byte, c *hfConfig) error {
	const remedy = "the files are of different models: remove the one that does not belong to this model"
	m, err := parseSentencePiece(model)
	if err != nil {
		return err
	}
	config := *c
	config.AddedTokens, config.more = nil, slices.Clone(f.added)
	added := map[int64]bool{}
	for _, a := range f.added {
		added[a.ID] = true
	}
	for id, used := range f.model.used {
		if !used || added[int64(id)] {
			continue
		}
		text := f.model.tokens[id]
		switch {
		case id >= len(m.text):
			return fmt.Errorf("it has %d tokens, and token %d is %.40q in tokenizer.json; %s", len(m.text), id, text,
				remedy)
		case m.kind[id] == typeNormal && m.text[id] != text:
			return fmt.Errorf("token %d is %.40q, and %.40q in tokenizer.json; %s", id, m.text[id], text, remedy)
		}
	}
	others, err := c.added()
	if err != nil {
		return err
	}
	for _, a := range others {
		if !added[a.ID] {
			config.more = append(config.more, a)
		}
	}
	scores := slices.Clone(m.scores)
	t, err := m.tokenizer(&config)
	if err != nil {
		return err
	}
	return x.takeScores(t, scores, &config)
}

// exportSentencePiece exports a tokenizer.model.
func exportSentencePiece(b []byte, c *hfConfig) (*export, error) {
	m, err := parseSentencePiece(b)
	x := &export{file: "tokenizer.model"}
	if err == nil {
		x.scores = slices.Clone(m.scores)
		x.t, err = m.tokenizer(c)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	x.fill = func() error {
		x.charsMap, x.collapse = m.charsMap, m.collapse
		return x.takeScores(x.t, x.scores, c)
	}
	return x, nil
}

// takeScores takes the tokens of t, a SentencePiece model and added ones, with the scores of the first.
func (x *export) takeScores(t *Tokenizer, scores []float32, c *hfConfig) error {
	added, err := c.added()
	if err != nil {
		return err
	}
	x.model, x.pre, x.scores = "llama", "default", scores
	x.take(t)
	for len(x.scores) < len(x.tokens) {
		x.scores = append(x.scores, paddingScore)
	}
	for _, a := range added {
		x.scores[a.ID] = addedScore
	}
	return nil
}

// scores gives each token a score so that joining any two whose text is a token, best score first, is what the merges
// say. That works where the merges came from scores: all ways to make a token stand together, and none is missing.
func (f *hfFile) scores(t *Tokenizer) ([]float32, error) {
	if err := f.cutsNothing(t); err != nil {
		return nil, err
	}
	ids := map[string]int32{} // of ordinary tokens
	for id, used := range f.model.used {
		if used && t.kind[id] == typeNormal {
			ids[f.model.tokens[id]] = int32(id)
		}
	}
	if err := f.missesNoMerge(ids); err != nil {
		return nil, err
	}
	// The ranks of the merges that make a token; -1: none.
	first, last := make([]int, len(t.text)), make([]int, len(t.text))
	for i := range first {
		first[i] = -1
	}
	var made []int32 // in order of their first merge
	for i := 0; i < len(f.model.merges); i += 2 {
		id, ok := ids[f.model.merges[i]+f.model.merges[i+1]]
		if !ok {
			continue
		}
		if first[id] < 0 {
			first[id] = i
			made = append(made, id)
		}
		last[id] = i
	}
	scores := make([]float32, len(t.text))
	score, end := float32(0), -1
	for _, id := range made {
		if first[id] > end { // tokens whose merges are mixed have the same score
			score--
		}
		scores[id] = score
		end = max(end, last[id])
	}
	for id := range scores {
		switch k := t.kind[id]; {
		case k == 0:
			scores[id] = paddingScore
		case k == typeNormal && first[id] < 0: // never the result of joining
			scores[id] = score - 1
		case k != typeNormal && k != typeByte:
			scores[id] = addedScore
		}
	}
	return scores, nil
}

// missesNoMerge is an error if there are two tokens whose joined text is a token, but no merge for them.
func (f *hfFile) missesNoMerge(ids map[string]int32) error {
	known := map[[2]string]bool{}
	for i := 0; i < len(f.model.merges); i += 2 {
		known[[2]string(f.model.merges[i:])] = true
	}
	for _, text := range f.model.tokens {
		if _, ok := ids[text]; !ok {
			continue
		}
		for i := 1; i < len(text); i++ {
			left, right := text[:i], text[i:]
			_, ok1 := ids[left]
			_, ok2 := ids[right]
			if ok1 && ok2 && !known[[2]string{left, right}] {
				return fmt.Errorf("model: merges: %.40q and %.40q make a token, but are not merged: these merges follow from "+
					"no scores, and GGUF has no merges of this kind; tokenizer.model is missing: %w", left, right, ErrUnsupported)
			}
		}
	}
	return nil
}

// cutsNothing is an error if the pre-tokenizer cuts where tokens of t could join.
func (f *hfFile) cutsNothing(t *Tokenizer) error {
	for _, p := range f.parts[1].flatten() {
		onSpace := p.Type == "Split" && p.Pattern != nil && p.Pattern.String != nil && *p.Pattern.String == " "
		if p.Type != "Metaspace" && !onSpace {
			return fmt.Errorf("pre_tokenizer: %s: GGUF has no pre-tokenizers for BPE over characters: %w", p.Type,
				ErrUnsupported)
		}
		if onSpace || isFalse(p.Split) {
			continue // spaces were replaced before
		}
		for id, k := range t.kind {
			if raw := t.rawOf(int32(id)); k == typeNormal && len(raw) > 1 && slices.Contains(raw[1:], ' ') {
				return fmt.Errorf("pre_tokenizer: cuts at spaces, of which the token %.40q has some: %w", t.text[id],
					ErrUnsupported)
			}
		}
	}
	return nil
}

// exportTekken exports a tekken.json as the byte-level BPE that joins as the ranks do.
func exportTekken(b []byte, c *hfConfig) (*export, error) {
	t, err := openTekken(b, c)
	if err != nil {
		return nil, err
	}
	x := &export{t: t, file: "tekken.json", model: "gpt2", defaults: hfConfig{Unknown: "<unk>", Padding: "<pad>"}}
	x.fill = x.fillRanks
	return x, nil
}

// fillRanks takes a tokenizer whose merges follow from ranks.
func (x *export) fillRanks() error {
	if err := x.takePre(); err != nil {
		return err
	}
	x.take(x.t)
	for id, kind := range x.types {
		switch kind {
		case typeNormal:
			x.merges = x.t.appendRankMerges(x.merges, int32(id))
			x.tokens[id] = byteEncoded(x.t.text[id])
		case typeUserDefined: // told apart from text as control tokens are
			x.types[id] = typeControl
		}
	}
	return nil
}

// takePre sets pre.
func (x *export) takePre() (err error) {
	note := ""
	if x.pre, note, err = x.t.findPre(); note != "" {
		x.notes = append(x.notes, note)
	}
	return err
}

// appendRankMerges appends the pairs of tokens that make a token, both of lower rank than it is: best ranks first.
func (t *Tokenizer) appendRankMerges(dst []string, id int32) []string {
	text := t.text[id]
	type pair struct {
		left, right uint32
		at          int
	}
	var pairs []pair
	for i := 1; i < len(text); i++ {
		left, right := t.findString(text[:i]), t.findString(text[i:])
		if left >= 0 && right >= 0 && max(t.priority[left], t.priority[right]) < t.priority[id] {
			pairs = append(pairs, pair{t.priority[left], t.priority[right], i})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return slices.Compare([]uint32{a.left, a.right}, []uint32{b.left,
			b.right})
	})
	for _, p := range pairs {
		dst = append(dst, byteEncoded(text[:p.at])+" "+byteEncoded(text[p.at:]))
	}
	return dst
}

// byteEncoded writes bytes in GPT-2's mapping.
func byteEncoded(s string) string {
	b := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		b = utf8.AppendRune(b, runeOf[s[i]])
	}
	return string(b)
}

// runeOf is GPT-2's mapping of bytes to characters.
var runeOf = func() (t [256]rune) {
	for r, b := range byteOf {
		if b >= 0 {
			t[b] = rune(r)
		}
	}
	return t
}()
