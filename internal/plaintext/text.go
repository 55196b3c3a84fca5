// Package plaintext shows text of others, and tables of it, without what a terminal obeys.
package plaintext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text of others (files, models, variables, arguments) can hold what a terminal obeys. All of it that a program shows
// goes through appendShown, whatever the way: Escape for a name in a line, Table and the lines of package cli by
// themselves, Printable and TextWriter for text of several lines, EncodeJSON for documents. test/cli/text_test.go finds
// code that prints beside them.

// hidden reports whether a character is shown by its number: it moves the cursor, reorders what stands around it, or cannot be seen.
//
// These are the control characters (Cc: C0, DEL, C1), the format characters (Cf: bidirectional controls, the byte order mark, soft hyphens,
// zero-width spaces, tags), line and paragraph separators, and what Unicode has as ignorable by default (fillers). Not among them: U+200C and
// U+200D, without which emoji and the scripts of Persian and India are spelt wrong and which reorder nothing; variation selectors; number signs
// of Arabic and others that are format characters but have ink. Unassigned characters stay: a terminal may know what this program does not.
func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r < 0xad, r == 0x200c, r == 0x200d:
		return false
	case r == 0x2028, r == 0x2029:
		return true
	case unicode.Is(unicode.Cf, r):
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	}
	return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// appendShown appends s to dst so that a terminal shows every character of it and obeys none: hidden ones become \x1b, \u202e or \U000e0041,
// bytes that are no UTF-8 \xff. A line feed is kept; in a line it becomes "; ", as a tab becomes \x09.
func appendShown(dst []byte, s string, line bool) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, s[i])
		case r == '\n' && line:
			dst = append(dst, "; "...)
		case !hidden(r), !line && (r == '\n' || r == '\t'):
			dst = append(dst, s[i:i+n]...)
		case r < 0x80:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r < 0x10000:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
		i += n
	}
	return dst
}

// asItIs reports whether appendShown would change nothing.
func asItIs(s []byte, line bool) bool {
	for i, c := range s {
		if c >= 0x80 {
			return utf8.Valid(s[i:]) && bytes.IndexFunc(s[i:], func(r rune) bool { return hidden(r) && (line || r != '\n' && r != '\t') }) < 0
		}
		if c < 0x20 && (line || c != '\n' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// Escape is text of others as a part of one line: see appendShown for what becomes of its characters.
func Escape(s string) string {
	if asItIs([]byte(s), true) {
		return s
	}
	return string(appendShown(nil, s, true))
}

// Printable is text of others for a terminal, line feeds and tabs kept: no text can move the cursor, set titles or send what else terminals
// obey. Text that holds nothing of the kind is returned as it is, without a copy.
func Printable(text []byte) []byte {
	if asItIs(text, false) {
		return text
	}
	return appendShown(nil, string(text), false)
}

// TextWriter makes what is written to it Printable. A character may come in two parts; the text must not end within one.
func TextWriter(w io.Writer) io.Writer { return &textWriter{w: w} }

type textWriter struct {
	w    io.Writer
	held []byte // the beginning of a character
}

func (t *textWriter) Write(p []byte) (int, error) {
	text := append(t.held, p...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= i
			}
			break
		}
	}
	_, err := t.w.Write(Printable(text[:whole]))
	t.held = bytes.Clone(text[whole:])
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// EncodeJSON writes one document and a line end. Characters such as < stay as they are; hidden ones become \u escapes, which mean the same.
func EncodeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(jsonShown(b.Bytes()))
	return err
}

// jsonShown escapes hidden characters of a document; outside its strings there are none but line feeds and tabs.
func jsonShown(doc []byte) []byte {
	if asItIs(doc, false) {
		return doc
	}
	var out []byte
	for i := 0; i < len(doc); {
		r, n := utf8.DecodeRune(doc[i:])
		switch {
		case !hidden(r) || r == '\n' || r == '\t':
			out = append(out, doc[i:i+n]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		}
		i += n
	}
	return out
}
