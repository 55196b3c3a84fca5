package corpus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"ck/internal/generate"
	"ck/internal/tokenizer"
)

// record is a line of JSON.
type record struct {
	Text       *string             `json:"text"`
	Prompt     *string             `json:"prompt"`
	Completion *string             `json:"completion"`
	Messages   *[]generate.Message `json:"messages"`
}

// jsonLines reads an example a line; empty lines are none.
func (r *reader) jsonLines(ctx context.Context, path string, in *bufio.Reader) error {
	for n := 1; ; n++ {
		s, err := line(in)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return &LineError{path, n, err}
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.TrimSpace(s) == "":
			continue
		}
		if err := r.take(path, n, func() (example, error) { return r.record(s) }); err != nil {
			return err
		}
	}
}

// record is the example of a line.
func (r *reader) record(s string) (example, error) {
	if !utf8.ValidString(s) {
		return example{}, errors.New("is not UTF-8")
	}
	var x record
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	if err := d.Decode(&x); err != nil {
		return example{}, fmt.Errorf("is no JSON object of an example: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return example{}, errors.New("has something behind its JSON object")
	}
	switch {
	case x.Messages != nil && x.Text == nil && x.Prompt == nil && x.Completion == nil:
		return r.messages(*x.Messages)
	case x.Text != nil && x.Prompt == nil && x.Completion == nil && x.Messages == nil:
		return r.text(*x.Text)
	case x.Prompt != nil && x.Completion != nil && x.Text == nil && x.Messages == nil:
		return r.completion(*x.Prompt, *x.Completion)
	}
	return example{}, errors.New(`has not one of the forms {"text"}, {"prompt", "completion"}, {"messages"}`)
}

// completion is a prompt, which does not count, and what follows, each cut into tokens by itself, as it is when the model is asked.
func (r *reader) completion(prompt, completion string) (example, error) {
	if completion == "" {
		return example{}, errors.New("its completion is empty")
	}
	ids, err := r.m.EncodePrompt(prompt, generate.Encoding{})
	if err != nil {
		return example{}, err
	}
	if eos, ok := r.m.Tok.EOS(); ok && len(ids) > 1 && ids[len(ids)-1] == eos { // some vocabularies end every text
		ids = ids[:len(ids)-1]
	}
	n := len(ids)
	ids = r.ended(r.m.Tok.EncodeParts(ids, []tokenizer.Part{{Text: completion}}, tokenizer.EncodeOptions{}))
	x := example{ids: ids, loss: make([]bool, len(ids))}
	copy(x.loss[n:], trues(len(ids)-n))
	return x, nil
}

// messages is a conversation of which the assistant's answers count, up to the token that ends each. What an answer is follows from rendering the
// conversation up to it, without it and with it. A template that writes earlier turns otherwise when later ones follow is refused.
func (r *reader) messages(list []generate.Message) (example, error) {
	t := r.c.opt.Template
	if t == nil {
		return example{}, errors.New("the model has no chat template for messages; name one with --template")
	}
	whole, err := r.m.Render(t, list, generate.RenderOptions{Continue: true})
	if err != nil {
		return example{}, err
	}
	x := example{ids: whole.IDs, loss: make([]bool, len(whole.IDs))}
	answers := 0
	for i, msg := range list {
		if msg.Role != "assistant" && msg.Role != "model" {
			continue
		}
		if i == 0 {
			return example{}, errors.New("begins with an answer")
		}
		asked, err := r.m.Render(t, list[:i], generate.RenderOptions{})
		if err != nil {
			return example{}, err
		}
		answered, err := r.m.Render(t, list[:i+1], generate.RenderOptions{Continue: true})
		if err != nil {
			return example{}, err
		}
		from, to := len(asked.IDs), len(answered.IDs)
		if from >= to || to > len(x.ids) || !slices.Equal(asked.IDs, x.ids[:from]) || !slices.Equal(answered.IDs, x.ids[:to]) {
			return example{}, fmt.Errorf("answer %d: the template writes what stands before it otherwise when more follows, so it cannot be told which tokens are the answer; use another template", answers+1)
		}
		for j := from; j < to; j++ {
			if x.loss[j] = true; r.m.Tok.IsEOG(x.ids[j]) {
				break
			}
		}
		answers++
	}
	if answers == 0 {
		return example{}, errors.New("has no answer of an assistant")
	}
	return x, nil
}
