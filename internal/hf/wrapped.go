package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	models "ck/internal/arch"
	"ck/internal/jsonfile"
	"ck/internal/safetensors"
)

// Models that also read pictures or sound have a language model in them: its configuration is text_config, its tensors have a longer name. What is
// beside it is left out.

// wrappers are the classes of such models.
var wrappers = []string{"Gemma3ForConditionalGeneration", "Gemma4ForConditionalGeneration", "Mistral3ForConditionalGeneration"}

// textModels are the classes of the language models in them, by text_config's model_type, and what transformers takes where the key is missing, as it
// often is there (configuration_gemma3.py).
var textModels = map[string]struct {
	class    string
	defaults map[string]any
}{
	"gemma3_text": {"Gemma3ForCausalLM", map[string]any{"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e6}},
	"gemma4_text": {"Gemma4ForCausalLM", nil},
	"mistral":     {"Ministral3ForCausalLM", nil},
	"ministral3":  {"Ministral3ForCausalLM", nil},
}

// unwrap is the configuration of the language model within that of a model that reads more than text, and notes of what it rests on; b itself and false
// where it is not one.
func unwrap(b []byte) (text []byte, notes []string, is bool, err error) {
	var outer struct {
		Architectures []string                   `json:"architectures"`
		Text          map[string]json.RawMessage `json:"text_config"`
	}
	if err := jsonfile.Unmarshal(b, &outer); err != nil || len(outer.Architectures) == 0 || !slices.Contains(wrappers, outer.Architectures[0]) {
		return b, nil, false, nil // what is wrong, others say
	}
	var kind string
	if outer.Text == nil || json.Unmarshal(outer.Text["model_type"], &kind) != nil {
		return nil, nil, false, fmt.Errorf("text_config: has no model_type; %s", models.Remedy)
	}
	of, ok := textModels[kind]
	if !ok {
		return nil, nil, false, fmt.Errorf("text_config: model_type %.100q is not supported; known are %s", kind, strings.Join(slices.Sorted(maps.Keys(textModels)), ", "))
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		return nil, nil, false, err
	}
	for _, key := range []string{"tie_word_embeddings", "quantization_config"} { // these may stand outside
		if v, ok := top[key]; ok && outer.Text[key] == nil {
			outer.Text[key] = v
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of.defaults)) {
		if outer.Text[key] != nil || key == "rope_theta" && outer.Text["rope_parameters"] != nil {
			continue
		}
		v, err := json.Marshal(of.defaults[key])
		if err != nil {
			return nil, nil, false, err
		}
		outer.Text[key] = v
		notes = append(notes, fmt.Sprintf("config.json: text_config.%s: is missing, taken as %s: that of transformers", key, v))
	}
	if outer.Text["architectures"], err = json.Marshal([]string{of.class}); err != nil {
		return nil, nil, false, err
	}
	text, err = json.Marshal(outer.Text)
	return text, notes, true, err
}

// textName is the name that a tensor of the language model has without the other parts; false for theirs.
func textName(name string) (string, bool) {
	for _, p := range [][2]string{{"language_model.model.", "model."}, {"model.language_model.", "model."}, {"language_model.lm_head.", "lm_head."}, {"lm_head.", "lm_head."}} {
		if rest, ok := strings.CutPrefix(name, p[0]); ok {
			return p[1] + rest, true
		}
	}
	return "", false
}

// textAlone leaves in files the tensors of the language model, by their own names, and returns how many others there are.
func textAlone(files []*safetensors.File) (others int) {
	for _, f := range files {
		var own []*safetensors.Tensor
		for _, t := range f.Tensors {
			name, ok := textName(t.Name)
			if !ok {
				others++
				continue
			}
			c := *t
			c.Name = name
			own = append(own, &c)
		}
		f.Tensors = own
	}
	return others
}
