package tokenizer

import "slices"

// endTexts are the names of tokens that end a turn or a text, whatever the file says about them: the list that llama.cpp keeps
// (src/llama-vocab.cpp).
var endTexts = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
	"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>",
	"<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["}

// markControls decides which tokens are control tokens beyond those that the file types so. It is the one definition, for every kind
// of file: EOS, and the ids that the file names for the end of a turn or a message; and what has one of endTexts for its name, unless
// the file says that it is ordinary text. All of these end a generation.
//
// It comes before build: no text becomes a control token by merging either.
func (t *Tokenizer) markControls(ends ...int32) {
	t.eog = map[int32]bool{}
	for _, id := range append(ends, t.eos) {
		if id >= 0 {
			t.kind[id] = typeControl
			t.eog[id] = true
		}
	}
	named := map[string]int32{}
	for id, text := range t.text {
		if t.kind[id] != typeNormal && text != "" && slices.Contains(endTexts, text) {
			t.kind[id] = typeControl
			t.eog[int32(id)] = true
			named[text] = int32(id)
		}
	}
	drop := func(text string, when ...string) {
		for _, w := range when {
			if _, ok := named[w]; !ok {
				return
			}
		}
		if id, ok := named[text]; ok && id != t.eos && !slices.Contains(ends, id) {
			delete(t.eog, id)
		}
	}
	// In the harmony format <|end|> closes a message, after which the model goes on with another.
	drop("<|end|>", "<|return|>", "<|call|>")
	drop("<|end|>", "<|calls|>", "<|flush|>")
	// Where <|tool_response> ends a turn, </s> is a tag of HTML.
	drop("</s>", "<|tool_response>")
}

// addEnds adds ids that end a generation, as generation_config.json lists them; ids beyond the vocabulary do not count. An ordinary
// word among them, a line feed for example, stays a word of texts.
func (t *Tokenizer) addEnds(ids []int64) {
	for _, id := range ids {
		if id < 0 || id >= int64(len(t.text)) {
			continue
		}
		t.eog[int32(id)] = true
		if t.kind[id] != typeNormal {
			t.kind[id] = typeControl
		}
	}
}
