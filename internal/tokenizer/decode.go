package tokenizer

import (
	"unicode/utf8"
)

// Piece is the token's text as the file writes it, "" for an id that is none.
func (t *Tokenizer) Piece(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.text[id]
}

// Bytes is what the token stands for: raw bytes, perhaps part of a character; the name of a control token. The slice must not
// be changed; it is nil for an id that is none.
func (t *Tokenizer) Bytes(id int32) []byte {
	if !t.valid(id) {
		return nil
	}
	return t.rawOf(id)
}

// DecodeOptions says how ids become text.
type DecodeOptions struct {
	SkipSpaceAtStart bool // drop the first space, if the vocabulary puts one before a text; not for what continues a prompt
	Special          bool // write the names of control tokens instead of nothing
}

// Decode appends the bytes of ids to dst; they are valid UTF-8 if the ids came from such text.
func (t *Tokenizer) Decode(dst []byte, ids []int32, opt DecodeOptions) []byte {
	d := t.NewDecoder(opt)
	for _, id := range ids {
		dst = append(dst, d.take(id)...)
	}
	return dst
}

// Decoder turns a stream of ids into text as it comes. It serves one goroutine.
type Decoder struct {
	t    *Tokenizer
	opt  DecodeOptions
	skip bool
	held []byte // the beginning of a character that is not complete
}

// NewDecoder begins a stream.
func (t *Tokenizer) NewDecoder(opt DecodeOptions) *Decoder {
	return &Decoder{t: t, opt: opt, skip: opt.SkipSpaceAtStart && t.trimDecoded}
}

// take is the bytes of the next id.
func (d *Decoder) take(id int32) []byte {
	if !d.t.valid(id) || !d.opt.Special && d.t.IsControl(id) {
		return nil
	}
	b := d.t.rawOf(id)
	if d.skip && len(b) > 0 && !d.t.IsControl(id) {
		d.skip = false
		if b[0] == ' ' {
			b = b[1:]
		}
	}
	return b
}

// Append takes the next id and returns the text that is complete now. Bytes that can no longer become a character are written
// as U+FFFD, one for each.
func (d *Decoder) Append(id int32) string {
	return toValid(d.AppendBytes(nil, id))
}

// AppendBytes takes the next id and appends to dst the bytes that are complete now: all but the beginning of a character
// whose rest may follow. Bytes that are no UTF-8 pass as they are.
func (d *Decoder) AppendBytes(dst []byte, id int32) []byte {
	b := d.take(id)
	if len(d.held) > 0 {
		b = append(d.held, b...)
	}
	n := len(b) - unfinished(b)
	dst = append(dst, b[:n]...)
	d.held = append([]byte(nil), b[n:]...)
	return dst
}

// Flush ends the stream and returns what waited, as Append would.
func (d *Decoder) Flush() string { return toValid(d.FlushBytes(nil)) }

// FlushBytes ends the stream and appends what waited.
func (d *Decoder) FlushBytes(dst []byte) []byte {
	dst = append(dst, d.held...)
	d.held = nil
	return dst
}

// unfinished counts the bytes at the end of b that begin a character whose rest is missing.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

func toValid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b))) // the conversion writes U+FFFD for each bad byte
}
