package bpe

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"ck/internal/tokenizer"
)

// Counter counts the words of texts. Its methods may be called from several goroutines, but for Train, which comes last.
type Counter struct {
	opt Options

	mu    sync.Mutex
	count map[string]int64 // by word
	bytes int              // of all words, each once
}

// NewCounter checks the options.
func NewCounter(opt Options) (*Counter, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if _, err := tokenizer.NewWords(opt.Pre); err != nil {
		return nil, err
	}
	return &Counter{opt: opt, count: map[string]int64{}}, nil
}

// Add counts the words of a text of at most 1 GiB; name is what errors call it. After an error the counter is of no use.
func (c *Counter) Add(name string, r io.Reader) error {
	var b strings.Builder
	if n, err := io.Copy(&b, io.LimitReader(r, maxFile+1)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	} else if n > maxFile {
		return fmt.Errorf("%s: more than %d bytes; cut it into several files between documents", name, maxFile)
	}
	text := b.String()
	if at := badByte(text); at >= 0 {
		return fmt.Errorf("%s: offset %d: byte 0x%02X is not UTF-8; convert the file", name, at, text[at])
	}
	return c.AddTexts(name, text)
}

// AddTexts counts the words of texts, each of which stands alone; name is what errors call them. They are UTF-8.
func (c *Counter) AddTexts(name string, texts ...string) error {
	words, err := tokenizer.NewWords(c.opt.Pre)
	if err != nil {
		return err
	}
	own := map[string]int64{}
	for _, text := range texts {
		for text != "" {
			var piece string
			piece, text = c.opt.cut(text)
			words.Each(piece, func(w string) { own[w]++ })
		}
	}
	return c.merge(name, own)
}

// merge adds the counts of one text.
func (c *Counter) merge(name string, own map[string]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, n := range own {
		if _, ok := c.count[w]; !ok {
			w = strings.Clone(w) // else the whole text stays in memory
			if c.bytes += len(w); c.bytes > maxDistinct {
				return fmt.Errorf("%s: with it the texts have more than %d bytes of distinct words; train on fewer texts", name, maxDistinct)
			}
		}
		c.count[w] += n
	}
	return nil
}

// badByte is the offset of the first byte of text that is not UTF-8, -1 if there is none.
func badByte(text string) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// cut is the text up to the first control token or border, and what follows that. Of control tokens at one place the longest counts.
func (o *Options) cut(text string) (piece, rest string) {
	for i := 0; i < len(text); i++ {
		if text[i] != '<' && text[i] != '[' {
			continue
		}
		if n := borderAt(text, i); n > 0 {
			return text[:i], text[i+n:]
		}
		longest := 0
		for _, c := range o.Control {
			if len(c) > longest && strings.HasPrefix(text[i:], c) {
				longest = len(c)
			}
		}
		if longest > 0 {
			return text[:i], text[i+longest:]
		}
	}
	return text, ""
}

// borderAt is the length of the border line that begins at text[i], with its line end; 0 if there is none.
func borderAt(text string, i int) int {
	if i > 0 && text[i-1] != '\n' || !strings.HasPrefix(text[i:], Border) {
		return 0
	}
	n := len(Border)
	for _, end := range []string{"\n", "\r\n"} {
		if strings.HasPrefix(text[i+n:], end) {
			return n + len(end)
		}
	}
	if i+n == len(text) {
		return n
	}
	return 0
}

// Files learns a vocabulary from the text of files, several at once: as many as workers, at least one. Each takes twice its size of memory.
func Files(ctx context.Context, paths []string, workers int, opt Options) (*Vocabulary, error) {
	c, err := NewCounter(opt)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(paths))
	next := make(chan int, len(paths))
	for i := range paths {
		next <- i
	}
	close(next)
	for range max(1, min(workers, len(paths))) {
		wg.Go(func() {
			for i := range next {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = c.addFile(paths[i])
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return c.Train(ctx)
}

func (c *Counter) addFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Add(path, f)
}
