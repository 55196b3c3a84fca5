package demotext

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"ck/internal/aside"
	"ck/internal/plaintext"
)

// Options say of what Write makes the text of the built-in model.
type Options struct {
	Seed          uint64
	StoryBytes    int64 // of stories from the grammar, about
	DialogueBytes int64 // of talks from the grammar, about

	Stories string           // the file of real stories; it is needed
	Books   []string         // files of books
	BookMax int64            // bytes of books at most: passages behind are left out
	Talk    []string         // files of talks, {"messages": [...]} a line
	Samples iter.Seq[string] // stories of a language model; nil: none

	RealTimes int     // how often a real story stands in TextFile
	HoldOut   float64 // the share of the real stories, 0.1 where the model is to be judged
	Near      float64 // the share of common shingles from which texts are near-duplicates
}

// Files of a folder that Write has filled. Those of the first block are to be learned from.
const (
	RealFile      = "real.jsonl"
	BooksFile     = "books.jsonl"
	StoriesFile   = "stories.jsonl"
	SamplesFile   = "samples.jsonl"
	DialoguesFile = "dialogues.jsonl"
	ChatFile      = "chat.jsonl"

	HeldOutFile   = "heldout.jsonl"
	QuestionsFile = "heldout-questions.jsonl"
)

// Files of the same text for the trainer. Documents of text end with lines <|endoftext|>; all are in an order of chance.
const (
	TextFile     = "text.txt"    // real stories, Options.RealTimes times, with books, stories of the grammar and samples
	TalksFile    = "talk.jsonl"  // all talks
	HeldTextFile = "heldout.txt" // the real stories that are held out
)

// Count is what became of a source. Near, Checked and Leaked count documents that were left out: as near-duplicates, by the rule check, for passages
// of held-out stories or its questions.
type Count struct {
	File                  string
	Documents             int
	Bytes                 int64 // of text, without JSON
	Near, Checked, Leaked int
}

// Report is the counts of all files and the reasons of the rule check, by their first word.
type Report struct {
	Counts  []Count
	Reasons map[string]int
}

// Table has a row for each file; shares are of the bytes to be learned from.
func (r *Report) Table() *plaintext.Table {
	t := &plaintext.Table{Head: []string{"file", "documents", "bytes", "share", "near-duplicates out", "checked out", "held-out text out"},
		Right: []bool{false, true, true, true, true, true, true}}
	var sum int64
	for _, c := range r.Counts {
		if !heldOut(c.File) {
			sum += c.Bytes
		}
	}
	for _, c := range r.Counts {
		share := "-"
		if !heldOut(c.File) && sum > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(c.Bytes)/float64(sum))
		}
		t.Rows = append(t.Rows, []string{c.File, strconv.Itoa(c.Documents), strconv.FormatInt(c.Bytes, 10), share,
			strconv.Itoa(c.Near), strconv.Itoa(c.Checked), strconv.Itoa(c.Leaked)})
	}
	return t
}

func heldOut(file string) bool { return file == HeldOutFile || file == QuestionsFile }

// writer is what the parts of Write share.
type writer struct {
	dir    string
	o      *Options
	report *Report
	leaks  leaks
	held   []string
	train  []string
	books  []string
	made   []string // stories of the grammar and samples
	talks  []talk
}

// Write makes the files of text in the folder dir, which exists, and counts what is in them. A file that is there already is an error (fs.ErrExist),
// and so is a bad line of a source. Each file appears whole or not at all. The same options give the same bytes.
func Write(dir string, o Options) (*Report, error) {
	if o.HoldOut < 0 || o.HoldOut >= 1 {
		return nil, fmt.Errorf("share to hold out: %g is not in [0, 1)", o.HoldOut)
	}
	if o.Near <= 0 || o.Near > 1 {
		return nil, fmt.Errorf("share of near-duplicates: %g is not in (0, 1]; 0.7 is good", o.Near)
	}
	if o.StoryBytes < 0 || o.DialogueBytes < 0 || o.BookMax < 0 {
		return nil, errors.New("bytes of stories, dialogues and books must not be negative")
	}
	if o.RealTimes < 1 {
		return nil, fmt.Errorf("real stories %d times: want 1 or more", o.RealTimes)
	}
	w := &writer{dir: dir, o: &o, report: &Report{Reasons: map[string]int{}}}
	for _, part := range []func() error{w.real, w.book, w.stories, w.samples, w.dialogues, w.talk, w.mixed} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return w.report, nil
}

// real reads the real stories and parts them.
func (w *writer) real() error {
	all, err := read(w.o.Stories, ReadStories)
	if err != nil {
		return err
	}
	d := NewDedup(w.o.Near)
	var each []string
	c := Count{File: RealFile}
	for _, s := range all {
		if _, _, dup := d.Add(s); dup {
			c.Near++
		} else {
			each = append(each, s)
		}
	}
	w.train, w.held = HoldOut(each, w.o.HoldOut, w.o.Seed)
	w.leaks = newLeaks(w.held, each)
	train := w.train[:0:0]
	for _, s := range w.train {
		if w.leaks.has(s) { // many small pieces, of several stories
			c.Leaked++
		} else {
			train = append(train, s)
		}
	}
	w.train = train
	if err := w.file(c, texts(w.train)); err != nil {
		return err
	}
	if err := w.file(Count{File: HeldOutFile}, texts(w.held)); err != nil {
		return err
	}
	return w.file(Count{File: QuestionsFile}, func(yield func(any, int) bool) {
		for _, q := range HeldOutQuestions() {
			if !yield(talk{[]Message{{"user", q}}}, len(q)) {
				return
			}
		}
	})
}

// read opens a file and names it in what goes wrong with it.
func read(path string, f func(io.Reader) ([]string, error)) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := f(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// book writes the passages of the books.
func (w *writer) book() error {
	c := Count{File: BooksFile}
	d := NewDedup(w.o.Near)
	size := int64(0)
	for _, path := range w.o.Books {
		list, err := read(path, Passages)
		if err != nil {
			return err
		}
		for _, s := range list {
			if w.leaks.has(s) {
				c.Leaked++
			} else if _, _, dup := d.Add(s); dup {
				c.Near++
			} else if size < w.o.BookMax {
				w.books, size = append(w.books, s), size+int64(len(s))
			}
		}
	}
	return w.file(c, texts(w.books))
}

func (w *writer) stories() error {
	c := Count{File: StoriesFile}
	d := NewDedup(w.o.Near)
	var list []string
	size := int64(0)
	for s := range Stories(w.o.Seed) {
		if size >= w.o.StoryBytes {
			break
		}
		if c.Near+c.Leaked > 100+10*len(list) {
			return fmt.Errorf("%s: %d stories of the grammar fit and %d do not: ask for less than %d bytes, or a share of near-duplicates above %g",
				StoriesFile, len(list), c.Near+c.Leaked, w.o.StoryBytes, w.o.Near)
		}
		if _, _, dup := d.Add(s); dup {
			c.Near++
		} else if w.leaks.has(s) {
			c.Leaked++
		} else {
			list, size = append(list, s), size+int64(len(s))
		}
	}
	w.made = append(w.made, list...)
	return w.file(c, texts(list))
}

// grammarStories is of how many stories of the grammar the filter takes the words.
const grammarStories = 2000

// samples writes those stories of a model that pass the filter.
func (w *writer) samples() error {
	if w.o.Samples == nil {
		return nil
	}
	known := Vocabulary(w.train, 1)
	maps.Copy(known, Vocabulary(w.books, 3))
	for n := range uint64(grammarStories) {
		maps.Copy(known, Vocabulary([]string{Story(w.o.Seed, n)}, 1))
	}
	f, d := NewFilter(known), NewDedup(w.o.Near)
	for _, s := range w.train { // what repeats a real story is no gain
		d.Add(s)
	}
	c := Count{File: SamplesFile}
	var list []string
	for s := range w.o.Samples {
		if reasons := f.Check(s); len(reasons) > 0 {
			c.Checked++
			for _, r := range reasons {
				word, _, _ := bytes.Cut([]byte(r), []byte(":"))
				w.report.Reasons[string(word)]++
			}
		} else if w.leaks.has(s) {
			c.Leaked++
		} else if _, _, dup := d.Add(s); dup {
			c.Near++
		} else {
			list = append(list, s)
		}
	}
	w.made = append(w.made, list...)
	return w.file(c, texts(list))
}

// talk is a line of a file of talks.
type talk struct {
	Messages []Message `json:"messages"`
}

func (w *writer) dialogues() error {
	return w.file(Count{File: DialoguesFile}, func(yield func(any, int) bool) {
		size := int64(0)
		for list := range Dialogues(w.o.Seed) {
			if size >= w.o.DialogueBytes {
				return
			}
			n := talkBytes(list)
			size += int64(n)
			w.talks = append(w.talks, talk{list})
			if !yield(talk{list}, n) {
				return
			}
		}
	})
}

func talkBytes(list []Message) (n int) {
	for _, m := range list {
		n += len(m.Content)
	}
	return n
}

// talk writes the talks of files, each once, without those that ask a question of those held out.
func (w *writer) talk() error {
	c := Count{File: ChatFile}
	seen := map[uint64]bool{}
	var list []talk
	for _, path := range w.o.Talk {
		_, err := read(path, func(r io.Reader) ([]string, error) {
			return nil, eachLine(r, func(_ int, line string) error {
				var t talk
				if err := json.Unmarshal([]byte(line), &t); err != nil {
					return err
				}
				if err := t.check(); err != nil {
					return err
				}
				h := hashText(talkString(t.Messages))
				switch {
				case seen[h]:
					c.Near++
				case asksHeldOut(t.Messages):
					c.Leaked++
				default:
					list = append(list, t)
				}
				seen[h] = true
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	w.talks = append(w.talks, list...)
	return w.file(c, func(yield func(any, int) bool) {
		for _, t := range list {
			if !yield(t, talkBytes(t.Messages)) {
				return
			}
		}
	})
}

func (t talk) check() error {
	if len(t.Messages) == 0 {
		return errors.New(`has no "messages"`)
	}
	for i, m := range t.Messages {
		if (m.Role != "user" && m.Role != "assistant" && m.Role != "system") || m.Content == "" {
			return fmt.Errorf("message %d: role %q with %d bytes: want user, assistant or system and a text", i+1, m.Role, len(m.Content))
		}
	}
	return nil
}

func asksHeldOut(list []Message) bool {
	for _, m := range list {
		if m.Role == "user" && heldOutKeys[questionKey(m.Content)] {
			return true
		}
	}
	return false
}

// texts gives texts as records with their sizes.
func texts(list []string) iter.Seq2[any, int] {
	return func(yield func(any, int) bool) {
		for _, s := range list {
			if !yield(map[string]string{"text": s}, len(s)) {
				return
			}
		}
	}
}

// mixed writes the files for the trainer.
func (w *writer) mixed() error {
	all := slices.Concat(w.books, w.made)
	for range w.o.RealTimes {
		all = append(all, w.train...)
	}
	r := generator(w.o.Seed, 0x6d6978)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	r.Shuffle(len(w.talks), func(i, j int) { w.talks[i], w.talks[j] = w.talks[j], w.talks[i] })
	for _, f := range []struct {
		name string
		of   []string
	}{{TextFile, all}, {HeldTextFile, w.held}} {
		err := w.aside(f.name, func(out *bufio.Writer) error {
			for _, s := range f.of {
				out.WriteString(s + "\n" + endMark + "\n") // an error stays to Flush
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return w.aside(TalksFile, func(out *bufio.Writer) error {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		for _, t := range w.talks {
			if err := enc.Encode(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// file writes records, one a line, and completes their count.
func (w *writer) file(c Count, records iter.Seq2[any, int]) error {
	err := w.aside(c.File, func(out *bufio.Writer) error {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		for r, size := range records {
			if err := enc.Encode(r); err != nil {
				return err
			}
			c.Documents++
			c.Bytes += int64(size)
		}
		return nil
	})
	if err == nil {
		w.report.Counts = append(w.report.Counts, c)
	}
	return err
}

// aside writes a file under another name, syncs it and gives it its name.
func (w *writer) aside(name string, write func(*bufio.Writer) error) (err error) {
	f, err := os.CreateTemp(w.dir, "."+name+".*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	out := bufio.NewWriter(f)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return aside.Rename(f.Name(), filepath.Join(w.dir, name), false)
}
