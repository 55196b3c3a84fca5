package scratch

import (
	"context"
	"sync"

	"ck/internal/bpe"
	"ck/internal/dataset"
)

// LearnOptions say what a vocabulary is.
type LearnOptions struct {
	Vocab        int      // tokens in all: 256 bytes, control tokens, learned ones
	Pre          string   // how texts are cut into words; see bpe.Options
	Template     string   // chat template, Jinja; "": none
	Control      []string // control tokens beside the three
	SkipBadLines int      // lines of the data that cannot be used and are no error
	Workers      int      // goroutines that count words

	Read    func(bytes int64) // is told how much of the files was read, if not nil
	Learned func(learned int) // is told the number of learned tokens, if not nil
}

const (
	leastCount   = 2       // a pair that is seen once says nothing about another text
	longestToken = 32      // bytes
	chunkBytes   = 1 << 20 // of texts that a worker gets at once
)

// OptionError says that no data makes such a vocabulary.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// Learn learns a vocabulary from the texts of files, as dataset.EachText has them, in any order and with any number of workers the same one. EndOfText
// stands before texts and ends documents. Errors are *OptionError, those of EachText, ctx's, and those of the data as a whole, such as bpe.ErrTooSmall.
func Learn(ctx context.Context, paths []string, o LearnOptions) (*bpe.Vocabulary, dataset.Stats, error) {
	control := append([]string{EndOfText, StartOfTurn, EndOfTurn}, o.Control...)
	c, err := bpe.NewCounter(bpe.Options{Vocab: o.Vocab, Pre: o.Pre, Control: control, LeastCount: leastCount, Longest: longestToken,
		BOS: EndOfText, EOS: EndOfText, Pad: EndOfText, AddBOS: true, Template: o.Template, Progress: o.Learned})
	if err != nil {
		return nil, dataset.Stats{}, &OptionError{err}
	}
	st, err := count(ctx, c, paths, o)
	if err != nil {
		return nil, st, err
	}
	v, err := c.Train(ctx)
	return v, st, err
}

// count counts the words of files, several chunks at once.
func count(ctx context.Context, c *bpe.Counter, paths []string, o LearnOptions) (dataset.Stats, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	chunks := make(chan []string)
	var wg sync.WaitGroup
	for range max(1, o.Workers) {
		wg.Go(func() {
			for texts := range chunks {
				if err := c.AddTexts("the data", texts...); err != nil {
					stop(err)
				}
			}
		})
	}
	var texts []string
	size := 0
	flush := func() error {
		select {
		case chunks <- texts:
			texts, size = nil, 0
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	st, err := dataset.EachText(ctx, paths, o.SkipBadLines, func(text string, read int64) error {
		texts, size = append(texts, text), size+len(text)
		if o.Read != nil {
			o.Read(read)
		}
		if size < chunkBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(texts) > 0 {
		err = flush()
	}
	close(chunks)
	wg.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return st, err
}
