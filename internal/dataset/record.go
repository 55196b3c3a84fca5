package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"ck/internal/generate"
)

// record is what an example says: one of the three forms.
type record struct {
	text               string
	prompt, completion string
	messages           []generate.Message
	form               form
}

type form uint8

const (
	document form = iota
	completed
	conversation
)

// maxMessages bounds the renderings of one conversation: there are two for each answer, of all before it.
const maxMessages = 2048

// misread are keys of the top level that change what an example means and that are not understood. Other keys are notes, and are left out.
var misread = []string{"tools", "functions", "documents", "system", "instruction", "input", "output", "chosen", "rejected", "conversations"}

// parseRecord reads a line of JSON.
func parseRecord(line []byte) (record, error) {
	top, err := parseObject(line, "")
	if err != nil {
		return record{}, err
	}
	for _, name := range misread {
		if v := top.get(name); v != nil && string(v) != "null" {
			return record{}, fmt.Errorf("has the key %s, which cannot be trained with; write what it says into prompt or messages, or take it out", name)
		}
	}
	text, prompt, completion, messages := top.get("text"), top.get("prompt"), top.get("completion"), top.get("messages")
	r := record{}
	switch {
	case text != nil && prompt == nil && completion == nil && messages == nil:
		r.form = document
		err = parseText(text, "text", &r.text)
		if err == nil && r.text == "" {
			err = errors.New("text: is empty")
		}
	case text == nil && prompt != nil && completion != nil && messages == nil:
		r.form = completed
		if err = parseText(prompt, "prompt", &r.prompt); err == nil {
			err = parseText(completion, "completion", &r.completion)
		}
		if err == nil && r.completion == "" {
			err = errors.New("completion: is empty: there is nothing to predict")
		}
	case text == nil && prompt == nil && completion == nil && messages != nil:
		r.form = conversation
		r.messages, err = parseMessages(messages)
	default:
		err = errors.New(`has not exactly one of the forms {"text"}, {"prompt", "completion"}, {"messages"}`)
	}
	return r, err
}

func parseMessages(b []byte) ([]generate.Message, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil || list == nil {
		return nil, errors.New("messages: is no array")
	}
	if len(list) > maxMessages {
		return nil, fmt.Errorf("messages: has %d turns, at most %d can be rendered; cut the conversation", len(list), maxMessages)
	}
	out := make([]generate.Message, len(list))
	answers := 0
	for i, b := range list {
		m, err := parseMessage(b, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		if isAnswer(m.Role) {
			if answers++; m.Content == "" {
				return nil, fmt.Errorf("messages[%d].content: is empty: there is nothing to predict", i)
			}
		}
		out[i] = m
	}
	switch {
	case answers == 0:
		return nil, errors.New("messages: has no answer (role assistant): there is nothing to predict")
	case isAnswer(out[0].Role):
		return nil, errors.New("messages[0]: is an answer to nothing; begin with the user's turn")
	}
	return out, nil
}

// isAnswer reports whether the model is to learn what a role says.
func isAnswer(role string) bool { return role == "assistant" || role == "model" }

// reasonings are the names of what an answer was reasoned with.
var reasonings = []string{"reasoning", "reasoning_content", "thinking"}

func parseMessage(b []byte, where string) (m generate.Message, err error) {
	o, err := parseObject(b, where+": ")
	if err != nil {
		return m, err
	}
	if o.get("role") == nil || o.get("content") == nil {
		return m, fmt.Errorf("%s: has no role or no content", where)
	}
	for i, name := range o.names {
		v, at := o.values[i], fmt.Sprintf("%s.%.40s", where, name)
		switch {
		case name == "role":
			if err = parseText(v, at, &m.Role); err == nil && m.Role == "" {
				err = fmt.Errorf("%s: is empty", at)
			}
		case name == "content":
			err = parseText(v, at, &m.Content)
		case string(v) == "null":
		case slices.Contains(reasonings, name):
			if m.Reasoning != "" {
				return m, fmt.Errorf("%s: is there under two names", at)
			}
			err = parseText(v, at, &m.Reasoning)
		default:
			err = fmt.Errorf("%s: cannot be trained with; messages have role, content and reasoning alone", at)
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// object is a JSON object with its keys as they are written: none is there twice, upper case is not lower case.
type object struct {
	names  []string
	values []json.RawMessage
}

func (o *object) get(name string) json.RawMessage {
	if i := slices.Index(o.names, name); i >= 0 {
		return o.values[i]
	}
	return nil
}

// maxKeys bounds the keys of an object, which are compared with each other.
const maxKeys = 256

func parseObject(b []byte, where string) (o object, err error) {
	if !utf8.Valid(b) {
		return o, fmt.Errorf("%sis not UTF-8", where)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, fmt.Errorf("%sis no JSON object", where)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return o, jsonError(where, err)
		}
		name := t.(string) // keys are strings, or there is an error
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return o, jsonError(where, err)
		}
		if o.get(name) != nil {
			return o, fmt.Errorf("%shas the key %.40q twice", where, name)
		}
		if len(o.names) == maxKeys {
			return o, fmt.Errorf("%shas more than %d keys", where, maxKeys)
		}
		o.names, o.values = append(o.names, name), append(o.values, v)
	}
	if _, err := d.Token(); err != nil {
		return o, jsonError(where, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return o, fmt.Errorf("%shas something behind its object", where)
	}
	return o, nil
}

func jsonError(where string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%sis JSON that breaks off", where)
	}
	return fmt.Errorf("%sis no JSON: %w", where, err)
}

// parseText reads a string. Half of a pair of surrogates is no character: it would silently become another one.
func parseText(b []byte, where string, s *string) error {
	if len(b) == 0 || b[0] != '"' {
		return fmt.Errorf("%s: is no string", where)
	}
	if err := json.Unmarshal(b, s); err != nil {
		return jsonError(where+": ", err)
	}
	if strings.Count(*s, "\ufffd") != strings.Count(string(b), "\ufffd")+escaped(b) {
		return fmt.Errorf(`%s: has half of a pair \ud800 to \udfff`, where)
	}
	return nil
}

// escaped is how often a JSON string has the escape of U+FFFD.
func escaped(b []byte) (n int) {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if b[i+1] == 'u' && i+6 <= len(b) && strings.EqualFold(string(b[i+2:i+6]), "fffd") {
			n++
		}
		i++ // what is escaped is no escape
	}
	return n
}
