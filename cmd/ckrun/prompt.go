package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"ck/internal/cli"
	"ck/internal/generate"
)

// maxText bounds what is read as one text: far more than any context holds.
const maxText = 64 << 20

// errNoPrompt says that there is nothing to do.
var errNoPrompt = errors.New("no prompt")

// readText is the text of words, of -p and -f in their order, and of stdin, as far as they are given, joined with blank lines.
// named: -p was given. errNoPrompt says that there is none.
func (p *program) readText(ctx context.Context, words []string, named bool) (string, error) {
	files := p.o.files()
	if named && len(words) > 0 {
		return "", cli.Usage("-p/--prompt: there are words too (%q); give the prompt once", words[0])
	}
	if slices.Index(files, "-") != lastIndex(files, "-") {
		return "", cli.Usage("-f/--file: - is named twice, and stdin can be read once; leave one out")
	}
	var texts []string
	given, size := false, 0
	add := func(where, text string) error {
		if size += len(text); size > maxText {
			return tooLong(where + " and what stands before it")
		}
		if text != "" {
			texts = append(texts, text)
		}
		return checkUTF8(where, text)
	}
	if len(words) > 0 {
		given = true
		if err := add("prompt", strings.Join(words, " ")); err != nil {
			return "", err
		}
	}
	for _, part := range p.o.parts {
		where, text, err := p.readPart(ctx, part)
		if err == nil {
			err = add(where, text)
		}
		if err != nil {
			return "", err
		}
		given = given || text != "" || where != "stdin"
	}
	if !slices.Contains(files, "-") && p.wantStdin(given) {
		text, err := p.readStdin(ctx)
		if err == nil {
			err = add("stdin", text)
		}
		if err != nil {
			return "", err
		}
		given = given || text != ""
	}
	if !given {
		return "", errNoPrompt
	}
	return strings.Join(texts, "\n\n"), nil
}

// readPart is the text of a -p or -f, and its name in errors.
func (p *program) readPart(ctx context.Context, part cli.Part) (where, text string, err error) {
	switch {
	case part.Flag == promptFlag:
		return "prompt", part.Value, nil
	case part.Value == "-":
		text, err = p.readStdin(ctx)
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
	return cli.Input("%s: has more than %d MiB, longer than any context; cut it", where, maxText>>20)
}

// wantStdin decides whether stdin is part of the text, without a -f that names it. given: words or a file are there already; then stdin
// counts only if it was clearly meant: a pipe, or a regular file of which nobody has read.
func (p *program) wantStdin(given bool) bool {
	in := p.app.In
	switch {
	case p.o.noStdin:
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
func (p *program) readStdin(ctx context.Context) (string, error) {
	return readAll(cli.Reader(ctx, p.app.In), "stdin")
}

// readAll reads r to its end, without one final line end.
func readAll(r io.Reader, where string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxText+1))
	switch {
	case errors.Is(err, cli.ErrInterrupt):
		return "", cli.Interrupted()
	case len(b) > maxText:
		return "", tooLong(where)
	}
	return dropLineEnd(string(b)), err
}

func dropLineEnd(s string) string {
	if t, ok := strings.CutSuffix(s, "\n"); ok {
		return strings.TrimSuffix(t, "\r")
	}
	return s
}

// checkUTF8 refuses text that is not UTF-8.
func checkUTF8(where, text string) error {
	if at := invalidUTF8(text); at >= 0 {
		return notUTF8(where, int64(at), text[at])
	}
	return nil
}

func notUTF8(where string, at int64, b byte) error {
	return cli.Input("%s: byte %d (0x%02x) is not UTF-8; convert the text, with iconv for example", where, at, b)
}

// invalidUTF8 is the offset of the first byte that is no UTF-8, or -1.
func invalidUTF8(s string) int {
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

// request is a prompt as the model gets it.
type request struct {
	ids  []int32
	text string // with the names of special tokens; of ids, their text

	reasoning *generate.Reasoning // nil: nothing is told apart
}

// request turns the user's text into a prompt, at most limit tokens long (0: no limit).
func (p *program) request(m *generate.Model, text string, limit int) (request, error) {
	o := &p.o
	t, err := p.useTemplate(m)
	if err != nil {
		return request{}, err
	}
	reasoning, vars := p.reasoning(m, t, p.app.Given("think"))
	enc := o.encoding()
	if o.truncate == "" && !o.show {
		enc.Max = limit
	}
	if t == nil {
		ids, err := m.EncodePrompt(text, enc)
		if err != nil {
			return request{}, err
		}
		return p.cutIDs(m, request{ids: ids, text: text}, limit), nil
	}
	render := func(text string) (request, error) {
		r, err := m.RenderPrompt(t, o.system, text, generate.RenderOptions{Encoding: enc, Vars: vars})
		return request{r.IDs, r.Text, reasoning}, err
	}
	r, err := render(text)
	if err != nil || o.truncate == "" || o.fits(r, limit) {
		return r, err
	}
	return p.cutText(m, r, render, text, limit)
}

// fits reports whether a prompt leaves room for the first new token, if there is to be one.
func (o *options) fits(r request, limit int) bool {
	return generate.CheckRoom(len(r.ids), limit, o.predict) == nil
}

// room is the number of prompt tokens that --truncate leaves: the context less -n, at least half of it.
func (o *options) room(limit int) int {
	if o.predict < 0 {
		return limit - limit/2
	}
	return limit - min(o.predict, limit/2)
}

// cutIDs cuts a plain prompt, as --truncate says. BOS stays.
func (p *program) cutIDs(m *generate.Model, r request, limit int) request {
	if p.o.truncate == "" || p.o.fits(r, limit) {
		return r
	}
	n := p.o.room(limit)
	p.warnCut(len(r.ids), limit, n)
	if p.o.truncate == "tail" {
		r.ids = r.ids[:n]
	} else {
		first := 0
		if bos, ok := m.Tok.BOS(); ok && r.ids[0] == bos {
			first = 1
		}
		r.ids = append(slices.Clone(r.ids[:first]), r.ids[len(r.ids)-n+first:]...)
	}
	r.text = p.textOf(m, r.ids)
	return r
}

// cutText cuts the user's text so that its rendering fits. Cut text is not encoded as a part of the whole was, so it is tried again
// where the rendering is still too long. Where the template alone leaves no room, the prompt stays too long.
func (p *program) cutText(m *generate.Model, r request, render func(string) (request, error), text string, limit int) (request, error) {
	encode := func() ([]int32, error) { return m.EncodePrompt(text, generate.Encoding{NoBOS: true}) }
	was := len(r.ids)
	ids, err := encode()
	if err != nil {
		return r, err
	}
	frame := was - len(ids) // tokens of the template
	// If the template takes more than half, the text and the answer share the rest.
	n := max(p.o.room(limit), (limit+frame)/2)
	for !p.o.fits(r, limit) || len(r.ids) > n && len(r.ids) < was {
		over := max(len(r.ids)-n, 1)
		if ids, err = encode(); err != nil {
			return r, err
		}
		if over >= len(ids) {
			break
		}
		if p.o.truncate == "tail" {
			ids = ids[:len(ids)-over]
		} else {
			ids = ids[over:]
		}
		text = strings.ToValidUTF8(p.textOf(m, ids), "")
		if r, err = render(text); err != nil {
			return r, err
		}
	}
	if len(r.ids) < was {
		p.warnCut(was, limit, len(r.ids))
	}
	return r, nil
}

// warnLost says once that parts of the texts so far have no tokens.
func (p *program) warnLost(m *generate.Model) {
	if s := m.LostText(); s != "" {
		p.app.Warn("%s", s)
	}
}

func (p *program) warnCut(was, limit, now int) {
	p.app.Warn("the prompt has %d tokens, the context %d; its %s is cut, %d tokens stay", was, limit, p.o.truncate, now)
}

func (p *program) textOf(m *generate.Model, ids []int32) string {
	return string(m.Tok.Decode(nil, ids, decodeAll))
}

// parseIDs reads ids below vocab, separated by commas or white space, or a JSON array. where names the source in errors; bad makes those of
// words that are no ids at all.
func parseIDs(where, s string, vocab int, bad func(string, ...any) error) ([]int32, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") {
		if !json.Valid([]byte(s)) {
			return nil, bad("%s: is not a JSON array of ids; correct it", where)
		}
		s = strings.Trim(s, "[] \t\r\n")
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	ids := make([]int32, 0, len(words))
	for i, w := range words {
		n, err := strconv.ParseInt(w, 10, 32)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return nil, bad("%s: %q is no token id; give whole numbers such as 1,2,3", where, abbreviate(w))
		case err != nil || n < 0 || n >= int64(vocab):
			return nil, cli.Input("%s: id %s at place %d is beyond the vocabulary, which has %d tokens; give ids below %d", where, abbreviate(w), i+1, vocab, vocab)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

func abbreviate(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// idsFlag reads the ids of --ids: a list or @FILE.
func (p *program) idsFlag(ctx context.Context, vocab int) ([]int32, error) {
	list, where, bad := p.o.ids, "--ids", cli.Usage
	if path, ok := strings.CutPrefix(list, "@"); ok {
		var err error
		switch where, bad = path, cli.Input; path {
		case "":
			return nil, cli.Usage("--ids: @ needs the name of a file, or - for stdin")
		case "-":
			where = "stdin"
			list, err = p.readStdin(ctx)
		default:
			list, err = readFile(ctx, path)
		}
		if err != nil {
			return nil, err
		}
	}
	ids, err := parseIDs(where, list, vocab, bad)
	if err == nil && len(ids) == 0 {
		err = cli.Usage("%s: there are no ids; give at least one, such as that of BOS", where)
	}
	return ids, err
}

func noPrompt(terminal bool) error {
	where := "stdin is empty"
	if terminal {
		where = "there are no words"
	}
	return cli.Usage(`no prompt: %s; give words, -f FILE or a pipe, or -p "" for the empty prompt`, where)
}

func fmtTokens(n int) string {
	if n == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", n)
}
