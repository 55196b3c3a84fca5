package quality

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Item is a multiple-choice question.
type Item struct {
	Line    int      `json:"-"` // of the file
	Context string   `json:"context"`
	Choices []string `json:"choices"`
	Answer  int      `json:"answer"` // index into Choices
}

const (
	maxItemLine = 4 << 20 // bytes of a line
	maxItems    = 1 << 20
	maxChoices  = 256
)

// ReadItems reads questions, one JSON object a line: "context" or "question", a text; "choices", two texts or more;
// "answer", the index of the right one from 0, or its letter. Other keys are ignored, as are empty lines. It stops
// after limit questions (0: all). Errors name the line as "name:line: ".
func ReadItems(name string, r io.Reader, limit int) ([]Item, error) {
	var out []Item
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxItemLine)
	line := 0
	for in.Scan() {
		line++
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		item, err := parseItem(in.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		if len(out) == maxItems {
			return nil, fmt.Errorf("%s:%d: more than %d questions; take a part of them", name, line, maxItems)
		}
		item.Line = line
		if out = append(out, item); len(out) == limit {
			return out, nil
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s:%d: the line has more than %d MiB; write one JSON object a line", name, line+1,
			maxItemLine>>20)
	case err != nil:
		return nil, err
	case len(out) == 0:
		return nil, fmt.Errorf(`%s: has no questions; write lines such as {"question": "…", "choices": ["…", "…"], "answer": 0}`, name)
	}
	return out, nil
}

// parseItem reads a line of ReadItems.
func parseItem(line []byte) (Item, error) {
	if !utf8.Valid(line) {
		return Item{}, errors.New("is not UTF-8; convert the file, with iconv for example")
	}
	var x struct {
		Context, Question *string
		Choices           []string
		Answer            json.RawMessage
	}
	if err := json.Unmarshal(line, &x); err != nil {
		return Item{}, fmt.Errorf(`%s; write {"question": "…", "choices": ["…", "…"], "answer": 0}`, jsonReason(err))
	}
	if x.Context == nil {
		x.Context = x.Question
	} else if x.Question != nil {
		return Item{}, errors.New(`has both "context" and "question"; write one text that the choices continue`)
	}
	n := len(x.Choices)
	switch {
	case x.Context == nil:
		return Item{}, errors.New(`has neither "context" nor "question"; write the text that the choices continue`)
	case n < 2 || n > maxChoices:
		return Item{}, fmt.Errorf(`has %d choices; "choices" takes 2 to %d texts`, n, maxChoices)
	}
	for i, c := range x.Choices {
		if strings.TrimSpace(c) == "" {
			return Item{}, fmt.Errorf("choice %d is empty; every choice needs a text", i)
		}
	}
	answer, err := parseAnswer(x.Answer, n)
	return Item{Context: *x.Context, Choices: x.Choices, Answer: answer}, err
}

// parseAnswer reads an index from 0 or a letter.
func parseAnswer(raw json.RawMessage, choices int) (int, error) {
	var index int
	var letter string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return 0, errors.New(`has no "answer"; write the index of the right choice, from 0, or its letter`)
	case json.Unmarshal(raw, &index) == nil:
	case json.Unmarshal(raw, &letter) == nil && len(letter) == 1 && 'a' <= letter[0]|0x20 && letter[0]|0x20 <= 'z':
		index = int(letter[0] | 0x20 - 'a')
	default:
		return 0, fmt.Errorf(`"answer" is %.40s; write the index of the right choice, from 0, or its letter`, raw)
	}
	if index < 0 || index >= choices {
		return 0, fmt.Errorf(`"answer" is %.40s of %d choices; the index counts from 0, letters from A`, raw, choices)
	}
	return index, nil
}

// jsonReason words an error of encoding/json without the names of Go's types.
func jsonReason(err error) string {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		if typ.Field == "" {
			return "is a JSON " + typ.Value + ", not an object"
		}
		return fmt.Sprintf("%q is a JSON %s", strings.ToLower(typ.Field), typ.Value)
	}
	return "is not JSON: " + err.Error()
}

// HashItems tells questions apart: SHA-256 of their texts and answers.
func HashItems(items []Item) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	for i := range items {
		if err := e.Encode(&items[i]); err != nil {
			panic(err) // texts and numbers always can be encoded
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// LogProbs are the natural log probabilities of tokens under logits [vocabulary], or an error where logits are no
// numbers.
func LogProbs(logits []float32, ids ...int32) ([]float64, error) {
	norm := logNorm(logits)
	out := make([]float64, len(ids))
	for i, id := range ids {
		out[i] = float64(logits[id]) - norm
		if math.IsNaN(out[i]) || math.IsInf(out[i], 0) {
			return nil, fmt.Errorf("the logit of token %d is %g, log(sum(exp)) of all is %g", id, logits[id], norm)
		}
	}
	return out, nil
}

// Scored is what a model gives the choices of a question.
type Scored struct {
	Answer   int       `json:"answer"`
	LogProbs []float64 `json:"log_probs"` // of each choice: the sum over its tokens, given the context
	Tokens   []int     `json:"tokens"`    // of each choice
	Bytes    []int     `json:"bytes"`
}

// Score is how choices of different lengths are compared.
type Score int

const (
	ScoreSum    Score = iota // by the probability of the whole choice
	ScoreBytes               // by the mean log probability of a byte
	ScoreTokens              // by the mean log probability of a token
)

// Pick is the choice with the best score; of equal ones the first.
func (s *Scored) Pick(by Score) int {
	best, top := 0, math.Inf(-1)
	for i, x := range s.LogProbs {
		switch by {
		case ScoreBytes:
			x /= float64(s.Bytes[i])
		case ScoreTokens:
			x /= float64(s.Tokens[i])
		}
		if x > top {
			best, top = i, x
		}
	}
	return best
}

// Right reports whether the best choice is the answer.
func (s *Scored) Right(by Score) bool { return s.Pick(by) == s.Answer }

// A Proportion is a share of counted things with its interval of 95 %.
type Proportion struct {
	Mean
	Count int `json:"count"`
	Of    int `json:"of"`
}

// Accuracy is the share of questions that are answered rightly, with the score interval of Wilson (1927), which holds
// for few questions and for shares near 0 and 1 too.
func Accuracy(list []Scored, by Score) Proportion {
	p := Proportion{Of: len(list)}
	for i := range list {
		if list[i].Right(by) {
			p.Count++
		}
	}
	p.Value = float64(p.Count) / float64(p.Of)
	p.Lo, p.Hi = wilson(p.Count, p.Of)
	return p
}

// normal95 is the quantile 0.975 of the normal distribution.
const normal95 = 1.959964

func wilson(count, of int) (lo, hi float64) {
	if of == 0 {
		return 0, 1
	}
	n, p, zz := float64(of), float64(count)/float64(of), normal95*normal95
	middle := (p + zz/(2*n)) / (1 + zz/n)
	half := normal95 / (1 + zz/n) * math.Sqrt(p*(1-p)/n+zz/(4*n*n))
	return min(p, middle-half), max(p, middle+half) // at 0 and 1 they meet, but for rounding
}

// Chance is the accuracy of guessing.
func Chance(list []Scored) float64 {
	sum := 0.0
	for i := range list {
		sum += 1 / float64(len(list[i].LogProbs))
	}
	return sum / float64(len(list))
}

// Paired compares two models on the same questions.
type Paired struct {
	Base   float64 `json:"base"`   // accuracy of the base
	Lost   int     `json:"lost"`   // questions that only the base answers rightly
	Gained int     `json:"gained"` // that only this model does
	P      float64 `json:"p"`      // of McNemar's test
}

// Compare pairs the answers of a base with those of this model; both lists hold the same questions in the same order.
func Compare(base, list []Scored, by Score) Paired {
	p := Paired{Base: Accuracy(base, by).Value}
	for i := range list {
		switch old, now := base[i].Right(by), list[i].Right(by); {
		case old && !now:
			p.Lost++
		case !old && now:
			p.Gained++
		}
	}
	p.P = mcNemar(p.Lost, p.Gained)
	return p
}

// mcNemar is the exact test of McNemar (1947): the probability that of lost+gained fair coins a side wins at least as
// clearly.
func mcNemar(lost, gained int) float64 {
	n, k := lost+gained, min(lost, gained)
	all, _ := math.Lgamma(float64(n + 1))
	p := 0.0
	for i := range k + 1 {
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		p += math.Exp(all - a - b - float64(n)*math.Ln2)
	}
	return min(1, 2*p)
}

// ScoredHead is the first line of a file of answers.
type ScoredHead struct {
	Schema    string `json:"schema"`
	Model     string `json:"model"`
	ModelHash string `json:"model_hash"`
	Items     string `json:"questions_sha256"`
	Count     int    `json:"questions"`
}

const scoredSchema = "ck.bench.choices.base/1"

// WriteScored writes a file of answers: JSON lines, the head, then a question each.
func WriteScored(w io.Writer, h ScoredHead, list []Scored) error {
	h.Schema, h.Count = scoredSchema, len(list)
	e := json.NewEncoder(w)
	err := e.Encode(h)
	for i := 0; i < len(list) && err == nil; i++ {
		err = e.Encode(&list[i])
	}
	return err
}

// ReadScored reads what WriteScored has written. Errors say what is wrong with the file, by line.
func ReadScored(r io.Reader) (h ScoredHead, list []Scored, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxItemLine)
	if !in.Scan() || json.Unmarshal(in.Bytes(), &h) != nil || h.Schema != scoredSchema {
		return h, nil, errors.New("is no base of ckbench quality --choices")
	}
	for line := 2; in.Scan(); line++ {
		var s Scored
		if err := json.Unmarshal(in.Bytes(), &s); err != nil {
			return h, nil, fmt.Errorf("line %d: %s", line, jsonReason(err))
		}
		n := len(s.LogProbs)
		if n < 2 || n > maxChoices || len(s.Tokens) != n || len(s.Bytes) != n || s.Answer < 0 || s.Answer >= n ||
			len(list) == maxItems {
			return h, nil, fmt.Errorf("line %d: holds no answer", line)
		}
		for i := range n {
			if s.Tokens[i] < 1 || s.Bytes[i] < 1 {
				return h, nil, fmt.Errorf("line %d: choice %d has no length", line, i)
			}
		}
		list = append(list, s)
	}
	if err := in.Err(); err != nil {
		return h, nil, err
	}
	if len(list) != h.Count {
		return h, nil, fmt.Errorf("has %d answers, its head says %d", len(list), h.Count)
	}
	return h, list, nil
}
