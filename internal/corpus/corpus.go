// Package corpus makes the slots of tokens that models are trained with of files of text: what is in them, what of it counts in the loss, in which order
// it comes.
package corpus

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"ck/internal/generate"
	"ck/internal/template"
)

// Options say what becomes of files.
type Options struct {
	Tokens  int     // of a slot
	Pack    bool    // several sequences share a slot; else each has its own
	Refuse  bool    // an example that is longer than a slot is an error; else it is cut
	Val     float64 // the share of examples that is held out
	Seed    uint64  // of the order
	SkipBad int     // lines that cannot be used and are no error

	Template *template.Template // for messages; nil: the model has none
}

// LineError says which line of a file cannot be used.
type LineError struct {
	Path string
	Line int // 0: the file
	Err  error
}

func (e *LineError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: line %d: %v", e.Path, e.Line, e.Err)
}
func (e *LineError) Unwrap() error { return e.Err }

// A Corpus is examples as tokens.
type Corpus struct {
	Train, Val   List
	Cut, Skipped int // examples that lost their end, lines that were skipped
	opt          Options
	hash         [sha256.Size]byte
	epochs       []epoch // see Slot
}

// A List is examples, one behind the other.
type List struct {
	ids  []int32
	loss []bool // the token is to be predicted
	ends []int  // of each in ids
}

// Len is the number of examples. Tokens is how many they have; Targets how many of these are to be predicted.
func (l *List) Len() int    { return len(l.ends) }
func (l *List) Tokens() int { return len(l.ids) }
func (l *List) Targets() (n int) {
	for _, x := range l.loss {
		if x {
			n++
		}
	}
	return n
}

// at is example i.
func (l *List) at(i int) (ids []int32, loss []bool) {
	from := 0
	if i > 0 {
		from = l.ends[i-1]
	}
	return l.ids[from:l.ends[i]], l.loss[from:l.ends[i]]
}

func (l *List) add(ids []int32, loss []bool) {
	l.ids, l.loss = append(l.ids, ids...), append(l.loss, loss...)
	l.ends = append(l.ends, len(l.ids))
}

// example is a text on its way into a list.
type example struct {
	ids  []int32
	loss []bool
	text bool // any part of it is worth as much
}

// ErrEmpty is that there is nothing to train with.
var ErrEmpty = errors.New("there is no token to predict in the data; give more text")

// Open reads files: *.jsonl has an example a line ({"text"}, {"prompt", "completion"}, {"messages"}), every other file is text, of which lines
// <|endoftext|> end documents. Errors are *LineError.
func Open(ctx context.Context, m *generate.Model, paths []string, opt Options) (*Corpus, error) {
	if opt.Tokens < 2 {
		return nil, fmt.Errorf("internal error: slots of %d tokens", opt.Tokens)
	}
	c := &Corpus{opt: opt}
	r := &reader{m: m, c: c}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.file(ctx, path); err != nil {
			return nil, err
		}
	}
	if c.Train.Targets() == 0 {
		return nil, ErrEmpty
	}
	c.sum()
	return c, nil
}

// sum makes the hash of what slots depend on.
func (c *Corpus) sum() {
	h := sha256.New()
	fmt.Fprintf(h, "ck corpus 1 %d %v %d\n", c.opt.Tokens, c.opt.Pack, c.opt.Seed)
	b := bufio.NewWriter(h)
	for _, l := range []*List{&c.Train, &c.Val} {
		for i := range l.Len() {
			ids, loss := l.at(i)
			_ = binary.Write(b, binary.LittleEndian, int64(len(ids)))
			_ = binary.Write(b, binary.LittleEndian, ids)
			_ = binary.Write(b, binary.LittleEndian, loss)
		}
	}
	b.Flush()
	h.Sum(c.hash[:0])
}

// Hash tells whether two corpora make the same slots.
func (c *Corpus) Hash() string { return hex.EncodeToString(c.hash[:]) }

// reader turns files into examples.
type reader struct {
	m *generate.Model
	c *Corpus
}

const (
	// documentEnd is the line that ends a document of a text file. It is never text.
	documentEnd = "<|endoftext|>"

	maxLine = 64 << 20 // bytes of a line of JSON, and of a document
)

func (r *reader) file(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return &LineError{Path: path, Err: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return &LineError{Path: path, Err: errors.New("is a directory; name files")}
	}
	in := bufio.NewReaderSize(f, 1<<20)
	each := r.textLines
	if e := strings.ToLower(filepath.Ext(path)); e == ".jsonl" || e == ".ndjson" {
		each = r.jsonLines
	}
	return each(ctx, path, in)
}

// line reads a line without its end; io.EOF behind the last.
func line(in *bufio.Reader) (string, error) {
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case len(b) > maxLine:
			return "", fmt.Errorf("is longer than %d MiB", maxLine>>20)
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(b) > 0, err == nil:
			return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
		default:
			return "", err
		}
	}
}

// textLines reads documents of plain text.
func (r *reader) textLines(ctx context.Context, path string, in *bufio.Reader) error {
	var doc strings.Builder
	first, n := 1, 0
	end := func() error {
		text := strings.Trim(doc.String(), "\n")
		doc.Reset()
		if text == "" {
			return nil
		}
		return r.take(path, first, func() (example, error) { return r.text(text) })
	}
	for {
		s, err := line(in)
		n++
		switch {
		case err == io.EOF:
			return end()
		case err != nil:
			return &LineError{path, n, err}
		case ctx.Err() != nil:
			return ctx.Err()
		case s == documentEnd:
			if err := end(); err != nil {
				return err
			}
			first = n + 1
			continue
		}
		if !utf8.ValidString(s) {
			return &LineError{path, n, errors.New("is not UTF-8")}
		}
		if doc.WriteString(s + "\n"); doc.Len() > maxLine {
			return &LineError{path, first, fmt.Errorf("a document of more than %d MiB; end documents with lines %s", maxLine>>20, documentEnd)}
		}
	}
}

// take adds what make makes, or counts a line that cannot be used.
func (r *reader) take(path string, n int, make func() (example, error)) error {
	x, err := make()
	if err == nil {
		err = r.add(x)
	}
	if err == nil {
		return nil
	}
	if r.c.Skipped < r.c.opt.SkipBad {
		r.c.Skipped++
		return nil
	}
	return &LineError{path, n, err}
}

// errLong is what an example that is longer than a slot gets.
var errLong = errors.New("is longer than a slot")

// add puts an example into its list. A text that is longer than a slot becomes several.
func (r *reader) add(x example) error {
	c := r.c
	if len(x.ids) < 2 {
		return errors.New("has no token to predict")
	}
	x.loss[0] = false // nothing stands before it
	if n := c.opt.Tokens; len(x.ids) > n {
		if c.opt.Refuse {
			return fmt.Errorf("has %d tokens, a slot %d: %w; make slots longer or let examples be cut", len(x.ids), n, errLong)
		}
		if !x.text {
			c.Cut++
		}
		for x.text && len(x.ids) > n {
			c.keep(x.ids[:n], x.loss[:n])
			x.ids, x.loss = x.ids[n-1:], x.loss[n-1:] // the last token is what the next part is predicted from
			x.loss[0] = false
		}
		x.ids, x.loss = x.ids[:min(n, len(x.ids))], x.loss[:min(n, len(x.loss))]
	}
	if len(x.ids) > 1 {
		c.keep(x.ids, x.loss)
	}
	return nil
}

// keep adds an example to what is trained with or held out, which its tokens decide: not what else there is.
func (c *Corpus) keep(ids []int32, loss []bool) {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, ids)
	share := float64(binary.LittleEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
	if share < c.opt.Val {
		c.Val.add(ids, loss)
	} else {
		c.Train.add(ids, loss)
	}
}

// text is the example of a text, with what the vocabulary puts around one.
func (r *reader) text(text string) (example, error) {
	ids, err := r.m.EncodePrompt(text, generate.Encoding{})
	if err != nil {
		return example{}, err
	}
	x := example{ids: r.ended(ids), text: true}
	x.loss = trues(len(x.ids))
	return x, nil
}

// ended is ids with the token of the end behind them, once.
func (r *reader) ended(ids []int32) []int32 {
	if eos, ok := r.m.Tok.EOS(); ok && (len(ids) == 0 || ids[len(ids)-1] != eos) {
		ids = append(ids, eos)
	}
	return ids
}

func trues(n int) []bool {
	b := make([]bool, n)
	for i := range b {
		b[i] = true
	}
	return b
}
