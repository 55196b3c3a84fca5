// Package prompt gathers what the user asks: a text from words, options, files and stdin, or token ids. Texts are UTF-8 and at most 64 MiB;
// errors name the place where a text comes from and are those of internal/cli. It knows no model.
package prompt

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"ck/internal/cli"
)

// MaxText bounds what is read as one text, in bytes: far more than any context holds.
const MaxText = 64 << 20

// ErrNone says that the user gave no text.
var ErrNone = errors.New("no prompt")

// The flags whose values are the parts of a prompt.
const (
	TextFlag = "prompt"
	FileFlag = "file"
)

// Source is where the text of a prompt may come from.
type Source struct {
	In      *os.File // stdin
	NoStdin bool     // it is never read unless a part names it
	Words   []string
	Parts   []cli.Part // of TextFlag and FileFlag, in the order of the command line; the file - is stdin
	Named   bool       // the command line has TextFlag, so words are one prompt too many
}

// Text is the text of words, of -p and -f in their order, and of stdin, as far as they are given, joined with blank lines.
// ErrNone says that there is none.
func (s *Source) Text(ctx context.Context) (string, error) {
	files := Files(s.Parts)
	if s.Named && len(s.Words) > 0 {
		return "", cli.Usage("-p/--prompt: there are words too (%q); give the prompt once", s.Words[0])
	}
	if slices.Index(files, "-") != lastIndex(files, "-") {
		return "", cli.Usage("-f/--file: - is named twice, and stdin can be read once; leave one out")
	}
	var texts []string
	given, size := false, 0
	add := func(where, text string) error {
		if size += len(text); size > MaxText {
			return tooLong(where + " and what stands before it")
		}
		if text != "" {
			texts = append(texts, text)
		}
		return CheckUTF8(where, text)
	}
	if len(s.Words) > 0 {
		given = true
		if err := add("prompt", strings.Join(s.Words, " ")); err != nil {
			return "", err
		}
	}
	for _, part := range s.Parts {
		where, text, err := s.readPart(ctx, part)
		if err == nil {
			err = add(where, text)
		}
		if err != nil {
			return "", err
		}
		given = given || text != "" || where != "stdin"
	}
	if !slices.Contains(files, "-") && s.wantStdin(given) {
		text, err := s.readStdin(ctx)
		if err == nil {
			err = add("stdin", text)
		}
		if err != nil {
			return "", err
		}
		given = given || text != ""
	}
	if !given {
		return "", ErrNone
	}
	return strings.Join(texts, "\n\n"), nil
}

// readPart is the text of a -p or -f, and its name in errors.
func (s *Source) readPart(ctx context.Context, part cli.Part) (where, text string, err error) {
	switch {
	case part.Flag == TextFlag:
		return "prompt", part.Value, nil
	case part.Value == "-":
		text, err = s.readStdin(ctx)
		return "stdin", text, err
	}
	text, err = readFile(ctx, part.Value)
	return part.Value, text, err
}

func lastIndex(list []string, s string) int {
	for i, v := range slices.Backward(list) {
		if v == s {
			return i
		}
	}
	return -1
}

func tooLong(where string) error {
	return cli.Input("%s: has more than %d MiB, longer than any context; cut it", where, MaxText>>20)
}

// wantStdin decides whether stdin is part of the text, without a -f that names it. given: words or a file are there already; then stdin
// counts only if it was clearly meant: a pipe, or a regular file of which nobody has read.
func (s *Source) wantStdin(given bool) bool {
	in := s.In
	switch {
	case s.NoStdin:
		return false
	case !given:
		return !cli.IsTerminal(in)
	}
	st, err := in.Stat()
	if err != nil {
		return false
	}
	if st.Mode().IsRegular() {
		at, err := in.Seek(0, io.SeekCurrent)
		return err == nil && at == 0
	}
	return st.Mode()&os.ModeNamedPipe != 0
}

func readFile(ctx context.Context, path string) (string, error) {
	f, err := cli.OpenReader(ctx, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readAll(f, path)
}

// readStdin reads stdin to its end.
func (s *Source) readStdin(ctx context.Context) (string, error) {
	return readAll(cli.Reader(ctx, s.In), "stdin")
}

// readAll reads r to its end, without one final line end.
func readAll(r io.Reader, where string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	switch {
	case errors.Is(err, cli.ErrInterrupt):
		return "", cli.Interrupted()
	case len(b) > MaxText:
		return "", tooLong(where)
	}
	return dropLineEnd(string(b)), err
}

// dropLineEnd drops one line end, as Unix or Windows writes it.
func dropLineEnd(s string) string {
	if t, ok := strings.CutSuffix(s, "\n"); ok {
		return strings.TrimSuffix(t, "\r")
	}
	return s
}

// Files are the names of the parts that are files.
func Files(parts []cli.Part) []string {
	var l []string
	for _, p := range parts {
		if p.Flag == FileFlag {
			l = append(l, p.Value)
		}
	}
	return l
}

// CheckUTF8 refuses text that is not UTF-8; where names it in the error.
func CheckUTF8(where, text string) error {
	if at := InvalidUTF8(text); at >= 0 {
		return NotUTF8(where, int64(at), text[at])
	}
	return nil
}

// NotUTF8 says that byte b at offset at is not UTF-8.
func NotUTF8(where string, at int64, b byte) error {
	return cli.Input("%s: byte %d (0x%02x) is not UTF-8; convert the text, with iconv for example", where, at, b)
}

// InvalidUTF8 is the offset of the first byte that is no UTF-8, or -1.
func InvalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
