package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// tekkenSpecials are the control tokens of tekken.json files that do not list them (version v3; mistral_common, tokens/tokenizers),
// ids from 0; the other ids below default_num_special_tokens are reserved.
var tekkenSpecials = []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
	"[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}

type tekkenConfig struct {
	Pattern     string `json:"pattern"`
	VocabSize   int    `json:"default_vocab_size"`
	NumSpecials int    `json:"default_num_special_tokens"`
}

type tekkenToken struct {
	Rank    int    `json:"rank"`
	Text    string `json:"token_str"`
	Control *bool  `json:"is_control"`
}

// FromTekken makes a tokenizer from the contents of Mistral's tekken.json. The first default_num_special_tokens ids are control
// tokens, those after them the entries by rank; a rank is also the priority of joining.
func FromTekken(tekkenJSON []byte) (*Tokenizer, error) {
	return openTekken(tekkenJSON, &hfConfig{})
}

func openTekken(tekkenJSON []byte, c *hfConfig) (*Tokenizer, error) {
	t, err := fromTekken(string(tekkenJSON), c)
	if err != nil {
		return nil, fmt.Errorf("tekken.json: %w", err)
	}
	return t, nil
}

func fromTekken(src string, c *hfConfig) (*Tokenizer, error) {
	var config tekkenConfig
	var named []tekkenToken
	var tokens []string
	j := jsonScanner{src: src}
	err := j.object(func(key string) error {
		if key == "vocab" {
			return j.array(func() error { return j.tekkenEntry(&tokens) })
		}
		raw, err := j.skip()
		if err != nil {
			return err
		}
		switch key {
		case "config":
			err = json.Unmarshal([]byte(raw), &config)
		case "special_tokens":
			err = json.Unmarshal([]byte(raw), &named)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n := config.VocabSize - config.NumSpecials
	if config.NumSpecials < 0 || config.NumSpecials > 1<<16 || n <= 0 || n > len(tokens) {
		return nil, fmt.Errorf("config: %d ids of which %d are special, the file lists %d tokens", config.VocabSize, config.NumSpecials, len(tokens))
	}
	t := &Tokenizer{bos: -1, eos: -1, unknown: -1, form: formRaw, spans: true, ignoreMerges: true}
	list, err := t.tekkenVocab(tokens[:n], named, config.NumSpecials)
	if err != nil {
		return nil, err
	}
	if t.steps, err = splitAtAll([]string{config.Pattern}); err != nil {
		return nil, err
	}
	for _, s := range list {
		switch s.text {
		case "<s>":
			t.bos = s.id
		case "</s>":
			t.eos = s.id
		}
	}
	t.markControls()
	t.addEnds(c.ends)
	if err := t.build(formRaw); err != nil {
		return nil, err
	}
	t.finish(list, true, false)
	return t, nil
}

// tekkenEntry reads one token; entries are in order of rank.
func (j *jsonScanner) tekkenEntry(tokens *[]string) error {
	rank, text := int64(-1), ""
	err := j.object(func(key string) error {
		switch key {
		case "rank":
			var err error
			rank, err = j.integer()
			return err
		case "token_bytes":
			s, err := j.str()
			if err != nil {
				return err
			}
			raw, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return j.errorf("token_bytes: %v", err)
			}
			text = string(raw)
			return nil
		}
		_, err := j.skip()
		return err
	})
	if err == nil && rank != int64(len(*tokens)) {
		err = j.errorf("rank %d, want %d", rank, len(*tokens))
	}
	*tokens = append(*tokens, text)
	return err
}

func (t *Tokenizer) tekkenVocab(tokens []string, named []tekkenToken, numSpecials int) ([]special, error) {
	total := numSpecials + len(tokens)
	t.text, t.kind, t.priority = make([]string, total), make([]uint8, total), make([]uint32, total)
	if len(named) == 0 {
		for i, text := range tekkenSpecials {
			named = append(named, tekkenToken{Rank: i, Text: text})
		}
	}
	for i := range numSpecials {
		t.text[i], t.kind[i] = fmt.Sprintf("<SPECIAL_%d>", i), typeControl
	}
	for _, s := range named {
		if s.Rank < 0 || s.Rank >= numSpecials {
			return nil, fmt.Errorf("special token %.40q has rank %d of %d", s.Text, s.Rank, numSpecials)
		}
		if t.text[s.Rank] = s.Text; s.Control != nil && !*s.Control {
			t.kind[s.Rank] = typeUserDefined
		}
	}
	var list []special
	for i := range numSpecials {
		list = append(list, special{text: t.text[i], id: int32(i), control: true})
	}
	for i, text := range tokens {
		t.text[numSpecials+i], t.kind[numSpecials+i], t.priority[numSpecials+i] = text, typeNormal, uint32(i)
	}
	return list, nil
}
