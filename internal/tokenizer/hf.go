package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/text/unicode/norm"

	"ck/internal/jsonfile"
)

// FromJSON makes a tokenizer from the contents of tokenizer.json (model BPE) and of tokenizer_config.json, which may be nil.
// Other models wrap ErrUnsupported, as do normalizers and pre-tokenizers that BPE models do not use.
func FromJSON(tokenizerJSON, config []byte) (*Tokenizer, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	return openJSON(tokenizerJSON, c)
}

func openJSON(tokenizerJSON []byte, c *hfConfig) (*Tokenizer, error) {
	t, err := fromJSON(string(tokenizerJSON), c)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

// hfConfig is what tokenizer_config.json says about ids.
type hfConfig struct {
	BOS         hfTokenText        `json:"bos_token"`
	EOS         hfTokenText        `json:"eos_token"`
	AddBOS      *bool              `json:"add_bos_token"`
	AddEOS      *bool              `json:"add_eos_token"`
	AddedTokens map[string]hfToken `json:"added_tokens_decoder"`
	Unknown     hfTokenText        `json:"unk_token"`
	Separator   hfTokenText        `json:"sep_token"`
	Padding     hfTokenText        `json:"pad_token"`
	Mask        hfTokenText        `json:"mask_token"`

	AddPrefixSpace *bool `json:"add_prefix_space"`

	ends []int64   // further ids that end a generation, of generation_config.json
	more []hfToken // added tokens that other files name
}

// hfTokenText is a token's text, written as a string or as an object with its content.
type hfTokenText string

func (s *hfTokenText) UnmarshalJSON(b []byte) error {
	var text string
	if len(b) > 0 && b[0] == '{' {
		var o struct {
			Content *string `json:"content"`
		}
		err := json.Unmarshal(b, &o)
		if err == nil && o.Content == nil {
			err = &json.UnmarshalTypeError{Value: "object without content", Type: reflect.TypeFor[string]()}
		}
		if err != nil {
			return err
		}
		*s = hfTokenText(*o.Content)
		return nil
	}
	err := json.Unmarshal(b, &text) // null leaves ""
	*s = hfTokenText(text)
	return err
}

func parseConfig(b []byte) (*hfConfig, error) {
	c := &hfConfig{}
	if len(b) == 0 {
		return c, nil
	}
	if err := jsonfile.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	return c, nil
}

// hfToken is an added token.
type hfToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Special    bool   `json:"special"`
}

func (h hfToken) special(id int32) special {
	return special{text: h.Content, id: id, control: h.Special, lstrip: h.LStrip, rstrip: h.RStrip, singleWord: h.SingleWord}
}

// hfModel is the part "model" of tokenizer.json.
type hfModel struct {
	kind         string
	unknown      string
	tokens       []string // by id
	used         []bool
	merges       []string // left and right in turn
	byteFallback bool
	ignoreMerges bool
	fuseUnknown  bool
}

// hfPart is a normalizer, pre-tokenizer, post-processor or decoder, or a sequence of them.
type hfPart struct {
	Type           string     `json:"type"`
	Normalizers    []hfPart   `json:"normalizers"`
	Pretokenizers  []hfPart   `json:"pretokenizers"`
	Processors     []hfPart   `json:"processors"`
	Decoders       []hfPart   `json:"decoders"`
	Pattern        *hfPattern `json:"pattern"`
	Behavior       string     `json:"behavior"`
	Invert         bool       `json:"invert"`
	Prepend        string     `json:"prepend"`
	Content        any        `json:"content"`
	AddPrefixSpace *bool      `json:"add_prefix_space"`
	UseRegex       *bool      `json:"use_regex"`
	Replacement    string     `json:"replacement"`
	PrependScheme  string     `json:"prepend_scheme"`
	Split          *bool      `json:"split"`
	Individual     bool       `json:"individual_digits"`
	StripLeft      bool       `json:"strip_left"`
	StripRight     bool       `json:"strip_right"`
	Start          int        `json:"start"`
	CharsMap       string     `json:"precompiled_charsmap"`
	Single         []hfItem   `json:"single"`
	SpecialTokens  map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
	CLS []any `json:"cls"`
	SEP []any `json:"sep"`
}

type hfItem struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
}

// hfPattern is a string or a regular expression.
type hfPattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (p *hfPattern) expr() (string, error) {
	switch {
	case p != nil && p.Regex != nil:
		return *p.Regex, nil
	case p != nil && p.String != nil:
		return quotePattern(*p.String), nil
	}
	return "", fmt.Errorf("a split without pattern")
}

// flatten is the list of parts that p stands for, sequences replaced by what they hold.
func (p hfPart) flatten() []hfPart {
	var out []hfPart
	switch {
	case p.Type == "":
	case p.Type != "Sequence":
		return []hfPart{p}
	default:
		for _, list := range [][]hfPart{p.Normalizers, p.Pretokenizers, p.Processors, p.Decoders} {
			for _, q := range list {
				out = append(out, q.flatten()...)
			}
		}
	}
	return out
}

// hfFile is what a tokenizer.json says.
type hfFile struct {
	model hfModel
	parts [4]hfPart // normalizer, pre-tokenizer, post-processor, decoder
	added []hfToken
}

func parseJSON(src string) (*hfFile, error) {
	f := &hfFile{}
	names := [4]string{"normalizer", "pre_tokenizer", "post_processor", "decoder"}
	j := jsonScanner{src: src}
	err := j.object(func(key string) error {
		if key == "model" {
			return j.model(&f.model)
		}
		raw, err := j.skip()
		if err != nil {
			return err
		}
		for i, name := range names {
			if key == name {
				err = json.Unmarshal([]byte(raw), &f.parts[i])
			}
		}
		if key == "added_tokens" {
			err = json.Unmarshal([]byte(raw), &f.added)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	return f, err
}

func fromJSON(src string, config *hfConfig) (*Tokenizer, error) {
	f, err := parseJSON(src)
	if err != nil {
		return nil, err
	}
	return f.tokenizer(config)
}

func (f *hfFile) tokenizer(config *hfConfig) (*Tokenizer, error) {
	m := &f.model
	if m.kind == "" && len(m.merges) > 0 {
		m.kind = "BPE"
	}
	if m.kind != "BPE" {
		return nil, fmt.Errorf("model type %q: %w", m.kind, ErrUnsupported)
	}
	t := &Tokenizer{bos: -1, eos: -1, unknown: -1, form: formEscaped, chars: true, ignoreMerges: m.ignoreMerges, fuseUnknown: m.fuseUnknown}
	if err := t.hfNormalizer(f.parts[0].flatten()); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if err := t.hfPreTokenizer(f.parts[1].flatten()); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	list, err := t.hfTokens(m, f.added)
	if err != nil {
		return nil, err
	}
	if err := t.hfPost(f.parts[2].flatten()); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	t.pickIDs(list, config)
	if err := t.hfBuild(m); err != nil {
		return nil, err
	}
	t.trimDecoded = t.escape && t.prefix != prefixNever
	for _, d := range f.parts[3].flatten() {
		if c, ok := d.Content.(string); d.Type == "Strip" && ok && c == " " && d.Start > 0 {
			t.trimDecoded = true
		}
	}
	t.setConfig(list, config, false)
	return t, nil
}

// model reads the part of that name.
func (j *jsonScanner) model(m *hfModel) error {
	return j.object(func(key string) (err error) {
		switch key {
		case "vocab":
			if j.peek() != '{' {
				_, err = j.skip() // a list: Unigram
				return err
			}
			return j.vocab(m)
		case "merges":
			return j.array(func() error { return j.merge(m) })
		}
		raw, err := j.skip()
		if err != nil {
			return err
		}
		affix := ""
		switch key {
		case "type":
			err = json.Unmarshal([]byte(raw), &m.kind)
		case "unk_token":
			err = json.Unmarshal([]byte(raw), &m.unknown)
		case "byte_fallback":
			err = json.Unmarshal([]byte(raw), &m.byteFallback)
		case "ignore_merges":
			err = json.Unmarshal([]byte(raw), &m.ignoreMerges)
		case "fuse_unk":
			err = json.Unmarshal([]byte(raw), &m.fuseUnknown)
		case "continuing_subword_prefix", "end_of_word_suffix":
			if err = json.Unmarshal([]byte(raw), &affix); err == nil && affix != "" && m.kind != "WordPiece" {
				err = ErrUnsupported
			}
		}
		if err != nil {
			return fmt.Errorf("model: %s: %w", key, err)
		}
		return nil
	})
}

func (j *jsonScanner) vocab(m *hfModel) error {
	return j.object(func(key string) error {
		id, err := j.integer()
		if err != nil {
			return err
		}
		// An entry takes six bytes at least: ids beyond what the file can list are damage, not holes.
		if id < 0 || id >= maxTokens || id > int64(len(j.src)/6) {
			return j.errorf("token %.40q has the id %d", key, id)
		}
		for int64(len(m.tokens)) <= id {
			m.tokens, m.used = append(m.tokens, ""), append(m.used, false)
		}
		m.tokens[id], m.used[id] = key, true
		return nil
	})
}

// merge reads "left right" or ["left", "right"].
func (j *jsonScanner) merge(m *hfModel) error {
	if j.peek() == '"' {
		s, err := j.str()
		left, right := splitMerge(s)
		m.merges = append(m.merges, left, right)
		return err
	}
	n := len(m.merges)
	err := j.array(func() error {
		s, err := j.str()
		m.merges = append(m.merges, s)
		return err
	})
	if err == nil && len(m.merges) != n+2 {
		err = j.errorf("a merge of %d parts", len(m.merges)-n)
	}
	return err
}

func (t *Tokenizer) hfNormalizer(parts []hfPart) error {
	if len(parts) > maxSteps {
		return fmt.Errorf("%d steps, limit is %d", len(parts), maxSteps)
	}
	forms := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
	for _, p := range parts {
		content, _ := p.Content.(string)
		if len(content) > maxReplacement || len(p.Prepend) > maxReplacement {
			return fmt.Errorf("a replacement of more than %d bytes", maxReplacement)
		}
		form, isForm := forms[p.Type]
		switch {
		case isForm:
			t.normal = append(t.normal, normStep{form: &form})
		case p.Type == "Prepend" && p.Prepend == escapedSpace:
			t.prefix = prefixAlways
		case p.Type == "Prepend":
			t.normal = append(t.normal, normStep{prepend: p.Prepend})
		case p.Type == "Replace" && p.Pattern != nil && p.Pattern.String != nil && *p.Pattern.String == " " && content == escapedSpace:
			t.escape = true
		case p.Type == "Replace" && p.Pattern != nil && p.Pattern.String != nil:
			t.normal = append(t.normal, normStep{old: *p.Pattern.String, new: content})
		case p.Type == "Replace":
			expr, err := p.Pattern.expr()
			if err != nil {
				return err
			}
			re, err := compilePattern(expr)
			if err != nil {
				return err
			}
			t.normal = append(t.normal, normStep{pattern: re, new: content})
		case p.Type == "Lowercase":
			t.normal = append(t.normal, normStep{lower: true})
		case p.Type == "Strip":
			t.normal = append(t.normal, normStep{trimL: p.StripLeft, trimR: p.StripRight})
		case p.Type == "Precompiled":
			raw, err := base64.StdEncoding.DecodeString(p.CharsMap)
			if err != nil {
				return fmt.Errorf("precompiled_charsmap: %w", err)
			}
			m, err := parseCharMap(raw)
			if err != nil {
				return err
			}
			if m != nil {
				t.normal = append(t.normal, normStep{charMap: m})
			}
		default:
			return fmt.Errorf("type %q: %w", p.Type, ErrUnsupported)
		}
	}
	return nil
}

func isFalse(b *bool) bool { return b != nil && !*b }

func (t *Tokenizer) hfPreTokenizer(parts []hfPart) error {
	if len(parts) > maxSteps {
		return fmt.Errorf("%d steps, limit is %d", len(parts), maxSteps)
	}
	escapedBefore := t.escape
	for i, p := range parts {
		s := splitStep{invert: p.Invert}
		expr, behavior := "", p.Behavior
		var err error
		switch p.Type {
		case "Split":
			expr, err = p.Pattern.expr()
		case "ByteLevel":
			t.form, t.chars = formBytes, false
			if !isFalse(p.AddPrefixSpace) {
				if i > 0 {
					return fmt.Errorf("ByteLevel that puts a space before each piece: %w", ErrUnsupported)
				}
				t.prefix, t.prefixOnce = prefixAlways, true
			}
			if isFalse(p.UseRegex) {
				continue
			}
			expr, behavior = exprGPT2, ""
		case "Metaspace":
			if err := t.hfMetaspace(p, i); err != nil {
				return err
			}
			if isFalse(p.Split) {
				continue
			}
			expr, behavior = " ", "MergedWithNext"
		case "Digits":
			if expr, behavior = `\p{N}+`, "Isolated"; p.Individual {
				expr = `\p{N}`
			}
		case "Punctuation":
			expr = `[\p{P}!-/:-@\[-` + "`{-~]"
		case "Whitespace":
			expr, behavior, s.invert = `\w+|[^\w\s]+`, "Removed", true
		case "WhitespaceSplit":
			expr, behavior = `\s+`, "Removed"
		default:
			err = fmt.Errorf("type %q: %w", p.Type, ErrUnsupported)
		}
		if err != nil {
			return err
		}
		if s.behavior, err = parseBehavior(behavior); err != nil {
			return err
		}
		step, err := splitAt(expr)
		if err != nil {
			return err
		}
		s.expr = expr
		if s.pattern = step.pattern; escapedBefore {
			s.pattern.readSpaceAs('▁') // what the pattern would find there
		}
		t.steps = append(t.steps, s)
	}
	if t.form == formBytes && t.escape {
		return fmt.Errorf("ByteLevel after spaces were replaced: %w", ErrUnsupported)
	}
	return nil
}

func (t *Tokenizer) hfMetaspace(p hfPart, i int) error {
	if p.Replacement != "" && p.Replacement != escapedSpace || i > 0 {
		return fmt.Errorf("pre-tokenizer Metaspace after others or with %q: %w", p.Replacement, ErrUnsupported)
	}
	t.escape, t.prefixOnce = true, true
	switch {
	case p.PrependScheme == "never" || p.PrependScheme == "" && isFalse(p.AddPrefixSpace):
		t.prefix = prefixNever
	case p.PrependScheme == "first":
		t.prefix = prefixFirst
	default:
		t.prefix = prefixAlways
	}
	return nil
}

// hfTokens sets text and types of all tokens, and lists the added ones.
func (t *Tokenizer) hfTokens(m *hfModel, added []hfToken) ([]special, error) {
	t.text = m.tokens
	t.kind = make([]uint8, len(m.tokens))
	for id, used := range m.used {
		switch _, isByte := byteToken(m.tokens[id]); {
		case used && isByte && m.byteFallback:
			t.kind[id] = typeByte
		case used:
			t.kind[id] = typeNormal
		}
	}
	list, err := t.addTokens(added)
	if err != nil {
		return nil, err
	}
	for id, text := range t.text {
		if m.unknown != "" && text == m.unknown {
			t.unknown = int32(id)
			if t.kind[id] == typeNormal {
				t.kind[id] = typeUnknown
			}
		}
	}
	return list, nil
}

// hfBuild makes the index and the merges. A token of the model that is an added one too takes part in them, as in HF, unless it is a
// control token: the index is made as if its type were that of a word.
func (t *Tokenizer) hfBuild(m *hfModel) error {
	kinds := t.kind
	t.kind = slices.Clone(kinds)
	for id, used := range m.used {
		if k := kinds[id]; used && (k == typeUserDefined || k == typeUnknown) {
			t.kind[id] = typeNormal
		}
	}
	err := t.build(t.form)
	if err == nil {
		err = t.addMerges(len(m.merges)/2, func(i int) (string, string) { return m.merges[2*i], m.merges[2*i+1] })
	}
	t.kind = kinds
	return err
}

// addTokens sets text and type of added tokens, which may extend the vocabulary, and lists them.
func (t *Tokenizer) addTokens(added []hfToken) ([]special, error) {
	limit := int64(2*(len(t.text)+len(added)) + 1024) // ids may leave holes, but not any
	var list []special
	for _, a := range added {
		if a.ID < 0 || a.ID > limit {
			return nil, fmt.Errorf("added token %.40q has the id %d, with %d tokens in the vocabulary", a.Content, a.ID, len(t.text))
		}
		for int64(len(t.text)) <= a.ID {
			t.text, t.kind = append(t.text, ""), append(t.kind, 0)
		}
		t.text[a.ID] = a.Content
		t.kind[a.ID] = typeUserDefined
		if a.Special {
			t.kind[a.ID] = typeControl
		}
		list = append(list, a.special(int32(a.ID)))
	}
	return list, nil
}

// hfPost reads what stands before and behind a single text.
func (t *Tokenizer) hfPost(parts []hfPart) error {
	add := func(dst *[]int32, id int64) error {
		v, err := t.checkID(id, "a special token")
		*dst = append(*dst, v)
		return err
	}
	for _, p := range parts {
		switch p.Type {
		case "TemplateProcessing":
			dst := &t.before
			for _, item := range p.Single {
				if item.SpecialToken == nil {
					dst = &t.after
					continue
				}
				ids := p.SpecialTokens[item.SpecialToken.ID].IDs
				if len(ids) == 0 {
					return fmt.Errorf("special token %.40q has no id", item.SpecialToken.ID)
				}
				for _, id := range ids {
					if err := add(dst, id); err != nil {
						return err
					}
				}
			}
		case "RobertaProcessing", "BertProcessing":
			for _, e := range []struct {
				dst  *[]int32
				pair []any
			}{{&t.before, p.CLS}, {&t.after, p.SEP}} {
				if len(e.pair) != 2 {
					return fmt.Errorf("%s: want a token and its id", p.Type)
				}
				id, ok := e.pair[1].(float64)
				if !ok {
					return fmt.Errorf("%s: want a token and its id", p.Type)
				}
				if err := add(e.dst, int64(id)); err != nil {
					return err
				}
			}
		case "ByteLevel": // offsets only
		default:
			return fmt.Errorf("type %q: %w", p.Type, ErrUnsupported)
		}
	}
	return nil
}

// Texts that begin or end a text in models whose files do not say which token does.
var (
	beginTexts = []string{"<s>", "<|begin_of_text|>", "<bos>", "<｜begin▁of▁sentence｜>", "<|startoftext|>"}
	closeTexts = []string{"</s>", "<|end_of_text|>", "<eos>", "<｜end▁of▁sentence｜>", "<|endoftext|>"}
)

// pickIDs finds BOS and EOS, and with them what is a control token.
func (t *Tokenizer) pickIDs(list []special, c *hfConfig) {
	byText := map[string]int32{}
	for _, s := range list {
		byText[s.text] = s.id
	}
	pick := func(id *int32, text string, around []int32, known []string) {
		if v, ok := byText[text]; text != "" && ok {
			*id = v
		}
		if *id < 0 && text == "" && len(around) == 1 {
			*id = around[0]
		}
		for _, k := range known {
			if v, ok := byText[k]; ok && *id < 0 && text == "" {
				*id = v
			}
		}
	}
	pick(&t.bos, string(c.BOS), t.before, beginTexts)
	pick(&t.eos, string(c.EOS), t.after, closeTexts)
	t.markControls()
	t.addEnds(c.ends)
}

// setConfig applies tokenizer_config.json and completes t. What AddSpecial adds is what the file's template says; the flags of
// the configuration, where they are set, decide about BOS and EOS.
func (t *Tokenizer) setConfig(list []special, c *hfConfig, addBOS bool) {
	addEOS := false
	if c.AddBOS != nil {
		addBOS = *c.AddBOS
		t.before = without(t.before, t.bos, !addBOS)
	}
	if c.AddEOS != nil {
		addEOS = *c.AddEOS
		t.after = without(t.after, t.eos, !addEOS)
	}
	t.finish(list, addBOS, addEOS)
}

// named is an error if the files beside the vocabulary name a beginning or end of texts that is no token of it.
func (t *Tokenizer) named(c *hfConfig) error {
	const remedy = "the files are of different models: download them again"
	for _, n := range []struct {
		key  string
		text hfTokenText
		id   int32
	}{{"bos_token", c.BOS, t.bos}, {"eos_token", c.EOS, t.eos}} {
		if n.text != "" && n.id < 0 && !slices.Contains(t.text, string(n.text)) {
			return fmt.Errorf("tokenizer_config.json: %s: is %.100q, which is no token; %s", n.key, string(n.text), remedy)
		}
	}
	for _, id := range c.ends {
		if id >= int64(len(t.text)) {
			return fmt.Errorf("generation_config.json: eos_token_id: is %d, but there are %d tokens; %s", id, len(t.text), remedy)
		}
	}
	return nil
}

// without removes id from ids if drop is set.
func without(ids []int32, id int32, drop bool) []int32 {
	var out []int32
	for _, v := range ids {
		if !drop || v != id {
			out = append(out, v)
		}
	}
	return out
}
