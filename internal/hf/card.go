package hf

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// card is the head of a model card: its keys with one or more texts each.
type card map[string][]string

// maxCard bounds the part of a card that is read; its head is at the start.
const maxCard = 1 << 20

// readCard reads the head of a card, empty if there is no file.
func readCard(path string) (card, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return card{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCard))
	if err != nil {
		return nil, err
	}
	return parseCard(string(b)), nil
}

// parseCard reads what a card says between lines of three hyphens. It is YAML, of which this takes what cards use for
// the keys of a description: texts and lists of texts. All else in it, mappings and texts of several lines, is passed
// over.
func parseCard(text string) card {
	c := card{}
	if !utf8.ValidString(text) {
		return c
	}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if lines[0] != "---" {
		return c
	}
	key := ""
	for _, line := range lines[1:] {
		if line == "---" {
			break
		}
		line = strings.ReplaceAll(line, "\t", "  ")
		body := strings.TrimLeft(line, " ")
		switch item, isItem := strings.CutPrefix(body, "- "); {
		case body == "" || body[0] == '#':
		case isItem:
			item = strings.TrimSpace(item)
			if v, ok := scalar(item); ok && key != "" && !isMapping(item) {
				c[key] = append(c[key], v)
			}
		case len(body) < len(line): // part of a value of several lines
		default:
			var value string
			var ok bool
			if key, value, ok = strings.Cut(line, ":"); !ok {
				key = ""
				continue
			}
			delete(c, key)
			if list := flow(strings.TrimSpace(value)); len(list) > 0 {
				c[key] = list
			}
		}
	}
	return c
}

// isMapping reports whether an item of a list is one of keys and values.
func isMapping(item string) bool {
	return item[0] != '"' && item[0] != '\'' && (strings.Contains(item, ": ") || strings.HasSuffix(item, ":"))
}

// flow is a value on the line of its key: a text, or a list in brackets.
func flow(value string) []string {
	inside, isList := strings.CutPrefix(value, "[")
	if !isList {
		if v, ok := scalar(value); ok {
			return []string{v}
		}
		return nil
	}
	inside, _, _ = strings.Cut(inside, "]")
	var out []string
	for item := range strings.SplitSeq(inside, ",") {
		if v, ok := scalar(strings.TrimSpace(item)); ok {
			out = append(out, v)
		}
	}
	return out
}

// scalar is a text, with or without quotes; false for none, and for what begins a value of another kind.
func scalar(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", false
	}
	if q := s[0]; q == '"' || q == '\'' {
		end := strings.IndexByte(s[1:], q)
		if end < 0 {
			return "", false
		}
		return s[1 : 1+end], end > 0
	}
	if at := strings.Index(s, " #"); at >= 0 { // a comment
		s = strings.TrimSpace(s[:at])
	}
	if s == "" || s == "null" || s == "~" || strings.ContainsRune("|>{[&*!#", rune(s[0])) {
		return "", false
	}
	return s, true
}
