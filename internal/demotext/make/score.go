package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"ck/internal/demotext"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/quality"
)

// blockBytes is the most that a block has of a story: a little over 400 tokens of stories260K, whose context is 512.
const blockBytes = 800

// blocks cuts stories at the ends of words, into blocks that all models read alike: by themselves.
func blocks(stories []string) (list []string) {
	for _, s := range stories {
		for len(s) > blockBytes {
			at := strings.LastIndexAny(s[:blockBytes], " \n")
			if at <= 0 {
				at = blockBytes
			}
			list, s = append(list, s[:at]), s[at:]
		}
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// readTexts reads the texts of JSON lines {"text"}.
func readTexts(path string) (list []string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var line struct{ Text string }
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil || line.Text == "" {
			return nil, fmt.Errorf("%s: text %d: expected {\"text\": \"...\"}: %w", path, len(list)+1, err)
		}
		list = append(list, line.Text)
	}
}

// bitsPerCharacter is what a model needs for texts, each by itself behind the token that begins texts: the sum of -log2 of the probabilities of their tokens,
// by their characters.
func bitsPerCharacter(ctx context.Context, m *generate.Model, e *engine.Engine, texts []string) (float64, error) {
	x := quality.OfEngine(e)
	bits, characters := 0.0, 0
	for _, text := range texts {
		ids, err := m.EncodePrompt(text, generate.Encoding{})
		if err != nil {
			return 0, err
		}
		if bos, ok := m.Tok.BOS(); ok && (len(ids) == 0 || ids[0] != bos) {
			ids = append([]int32{bos}, ids...)
		}
		if len(ids) > m.Context {
			return 0, fmt.Errorf("a text of %d tokens, the model's context is %d", len(ids), m.Context)
		}
		seq := x.NewSeq()
		err = x.Forward(ctx, seq, ids, func(i int, logits []float32) error {
			if i+1 == len(ids) {
				return nil
			}
			p, err := quality.LogProbs(logits, ids[i+1])
			if err == nil {
				bits -= p[0] / math.Ln2
			}
			return err
		})
		x.Drop(seq)
		if err != nil {
			return 0, err
		}
		characters += utf8.RuneCountInString(text)
	}
	return bits / float64(characters), nil
}

// sentences judges the first n sentences of what a model tells: how many pass, and how many have which fault.
func sentences(ctx context.Context, m *generate.Model, seed uint64, n int) (pass int, faults map[string]int, err error) {
	const each = 100 // bytes of a sentence, more than they have
	var told bytes.Buffer
	if _, err := samples(ctx, m, &told, seed, int64(n*each), 1); err != nil {
		return 0, nil, err
	}
	judge, faults, left := demotext.NewJudge(), map[string]int{}, n
	for story := range strings.SplitSeq(told.String(), "\n<|endoftext|>\n") {
		for _, s := range judge.Sentences(story) {
			if left == 0 {
				return pass, faults, nil
			}
			left--
			if s.Fault == "" {
				pass++
				continue
			}
			fault, _, _ := strings.Cut(s.Fault, " ")
			faults[fault]++
		}
	}
	return 0, nil, fmt.Errorf("%d sentences in %d bytes, expected %d", n-left, told.Len(), n)
}

// score writes what models need for texts and how many of n sentences that they tell pass the judge, a line each.
func score(ctx context.Context, models []string, path string, seed uint64, n int, stdout io.Writer) error {
	texts, err := readTexts(path)
	if err != nil {
		return err
	}
	texts = blocks(texts)
	if _, err := fmt.Fprintf(stdout, "%d blocks of at most %d bytes, each by itself; %d sentences\n\n| model | bits per character | sentences that pass | faults |\n|---|---|---|---|\n",
		len(texts), blockBytes, n); err != nil {
		return err
	}
	for _, path := range models {
		m, err := generate.Open(path)
		if err != nil {
			return err
		}
		e, err := engine.Open(m.Weights, engine.Options{Context: m.Context})
		var bits float64
		if err == nil {
			bits, err = bitsPerCharacter(ctx, m, e, texts)
			e.Close()
		}
		var pass int
		var faults map[string]int
		if err == nil {
			pass, faults, err = sentences(ctx, m, seed, n)
		}
		if err = errors.Join(err, m.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list, _ := json.Marshal(faults) // in the order of their names
		if _, err := fmt.Fprintf(stdout, "| %s | %.3f | %.1f %% | %s |\n", path, bits, 100*float64(pass)/float64(n), list); err != nil {
			return err
		}
	}
	return nil
}
