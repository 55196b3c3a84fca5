// Package dataset makes slots of tokens for fine-tuning of files of text: what is in them, what of it counts in the loss, in which order they come.
//
// A file becomes examples (a document, a prompt with its completion, a conversation), an example becomes one sequence of tokens, and sequences are put
// into slots of T tokens. Tokens are kept in one flat array of 4 bytes a token, and in a file beside the data; see cache.go.
package dataset

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"ck/internal/generate"
	"ck/internal/template"
)

// TooLong says what becomes of a sequence of more than T tokens.
type TooLong string

const (
	// Cut ends a prompt or conversation behind T tokens. A document becomes several sequences, each of which begins with the last token of the
	// one before, so that every token is predicted once.
	Cut TooLong = "cut"
	// Refuse leaves the whole example out. Stats.Refused counts them; Stats.Bad names the first.
	Refuse TooLong = "refuse"
)

// Options say what becomes of files.
type Options struct {
	Tokens       int     // T, of a slot; at least 2
	Pack         bool    // several sequences share a slot; else each has its own
	TooLong      TooLong // there is no default
	Val          float64 // the share of examples that is held out, from 0 to below 1; what an example says decides, not where it stands
	Seed         uint64  // of the order
	SkipBadLines int     // lines that cannot be used and are no error

	Template *template.Template // for messages; nil: the model has none
	Vars     template.Vars      // what the template is told beside the conversation (enable_thinking); nil: nothing
	Now      time.Time          // for templates that write the date; zero: conversations in which it shows are refused

	CacheDir string // where tokens are kept; "": beside the first file
	NoCache  bool   // tokens are not kept
}

// A Set is examples as tokens, in slots. It serves any number of goroutines.
type Set struct {
	Stats     Stats
	FromCache bool  // the tokens were not made anew
	CacheErr  error // why they could not be kept; the set is whole without that

	opt        Options
	train, val list
	valPack    packing
	hash       [32]byte

	mu     sync.Mutex
	ends   []int // slots of the run before the end of each epoch, as far as known
	recent packing
	epoch  int // whose packing is recent
}

// Stats are what became of the files.
type Stats struct {
	Examples int // in the files, bad lines not counted

	Cut      int // prompts and conversations that lost their end
	Split    int // documents that became several sequences
	Refused  int // examples that were too long and left out
	Skipped  int // bad lines
	NoTarget int // examples without a token to predict, most of them cut before it
	NoEnd    int // answers behind which the template writes no token that ends a generation
	Seams    int // prompts that end within what would be one token of the text; the completion was cut into tokens by itself

	Bad  []Bad  // the first few of Refused and Skipped
	Lost []byte // bytes that the vocabulary has no token for: they were dropped
}

// Bad is an example that is not in the set.
type Bad struct {
	Path   string
	Line   int
	Reason string
}

func (b Bad) String() string { return fmt.Sprintf("%s: line %d: %s", b.Path, b.Line, b.Reason) }

// bads is how many of them are kept.
const bads = 10

func (s *Stats) bad(path string, line int, err error) {
	if len(s.Bad) < bads {
		s.Bad = append(s.Bad, Bad{path, line, err.Error()})
	}
}

// LineError says which line of a file cannot be used. Input of that kind is the user's to mend.
type LineError struct {
	Path string
	Line int // from 1 on, the first of a document; 0: the file as a whole
	Err  error
}

func (e *LineError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: line %d: %v", e.Path, e.Line, e.Err)
}
func (e *LineError) Unwrap() error { return e.Err }

// ErrEmpty is wrapped by the error that there is nothing to train with.
var ErrEmpty = errors.New("the data has no token to predict")

// Open makes the set of files: *.jsonl and *.ndjson have an example a line ({"text"}, {"prompt", "completion"}, {"messages"}); *.txt, *.text and *.md
// are text, of which lines <|endoftext|> end documents. Errors of files and lines are *LineError, that of an empty set is ErrEmpty; all others are
// of options, or ctx's.
func Open(ctx context.Context, m *generate.Model, paths []string, opt Options) (*Set, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	files, err := openable(paths)
	if err != nil {
		return nil, err
	}
	s := &Set{opt: opt, epoch: -1}
	if err := s.load(ctx, m, files); err != nil {
		return nil, err
	}
	if s.train.targets == 0 {
		return nil, s.empty()
	}
	if len(s.train.ends) > math.MaxInt32 || len(s.val.ends) > math.MaxInt32 {
		return nil, fmt.Errorf("the data has %d sequences, at most %d can be ordered; give less", len(s.train.ends)+len(s.val.ends), math.MaxInt32)
	}
	s.sum()
	s.valPack = s.pack(&s.val, inOrder(len(s.val.ends)))
	return s, nil
}

func (o *Options) check() error {
	switch {
	case o.Tokens < 2 || o.Tokens > math.MaxInt32:
		return fmt.Errorf("slots of %d tokens: wanted 2 to %d", o.Tokens, math.MaxInt32)
	case o.TooLong != Cut && o.TooLong != Refuse:
		return fmt.Errorf("sequences that are too long: %q is neither %s nor %s", o.TooLong, Cut, Refuse)
	case !(o.Val >= 0 && o.Val < 1):
		return fmt.Errorf("a share of %v to hold out: wanted 0 to below 1", o.Val)
	case o.SkipBadLines < 0:
		return fmt.Errorf("%d bad lines to skip: wanted 0 or more", o.SkipBadLines)
	}
	return nil
}

// empty says why there is nothing to train with.
func (s *Set) empty() error {
	st := &s.Stats
	switch {
	case s.val.targets > 0:
		return fmt.Errorf("%w: all %d examples are held out; hold out less, or give more documents", ErrEmpty, s.val.examples)
	case st.Refused > 0:
		return fmt.Errorf("%w: %d examples are longer than a slot and refused (%s); make slots longer or let them be cut", ErrEmpty, st.Refused, st.Bad[0])
	case st.NoTarget > 0:
		return fmt.Errorf("%w: %d examples have nothing that counts within %d tokens; make slots longer", ErrEmpty, st.NoTarget, s.opt.Tokens)
	case st.Skipped > 0:
		return fmt.Errorf("%w: all %d lines are bad (%s)", ErrEmpty, st.Skipped, st.Bad[0])
	}
	return fmt.Errorf("%w: its files hold no example; give more text", ErrEmpty)
}

// Part is how much there is to train with, or held out.
type Part struct {
	Examples  int
	Sequences int // of which long documents have several
	Slots     int // of training: of the first epoch; packed, later ones may have a few more or less
	Tokens    int // padding left out
	Targets   int // tokens that are to be predicted
}

// Train is what there is to train with.
func (s *Set) Train() Part { return s.train.part(s.Slots(0)) }

// Val is what is held out. It may be nothing: a share of few examples can be none.
func (s *Set) Val() Part { return s.val.part(s.valPack.slots()) }

func (l *list) part(slots int) Part {
	return Part{l.examples, len(l.ends), slots, len(l.words), l.targets}
}

// Hash tells whether two sets make the same slots: it is of the tokens, what counts of them, and the options that order them. Where the files lie
// does not matter.
func (s *Set) Hash() string { return hex.EncodeToString(s.hash[:]) }

// list is sequences of tokens, one behind the other.
type list struct {
	words    []int32 // a token, or ^token where it is to be predicted
	ends     []int   // of each sequence in words
	examples int
	targets  int
}

// at is sequence i.
func (l *list) at(i int) []int32 {
	from := 0
	if i > 0 {
		from = l.ends[i-1]
	}
	return l.words[from:l.ends[i]]
}

// add adds a sequence, whose first token is never to be predicted: nothing stands before it.
func (l *list) add(words []int32) {
	at := len(l.words)
	l.words = append(l.words, words...)
	l.words[at] = token(l.words[at])
	l.ends = append(l.ends, len(l.words))
	for _, w := range l.words[at:] {
		if w < 0 {
			l.targets++
		}
	}
}

// token is the token of a word.
func token(w int32) int32 {
	if w < 0 {
		return ^w
	}
	return w
}
