// Make makes the training text of the built-in model, in two steps, and scores what was trained with it:
//
//	make sample -model MODEL -bytes N -o FILE [-seed S] [-t THREADS]
//	make text -data ../shared/data -o DIR [-samples FILE] [-seed S] [-stories N] [-dialogues N] [-books N]
//
//	make score -texts FILE [-seed S] [-n SENTENCES] MODEL...
//
// The first writes stories that a language model tells. The second writes the files of demotext.Write into a folder that it makes, and report.txt with
// the counts. Both give the same bytes for the same values, whatever the threads. The third holds models side by side: bits per character of texts that
// none has seen, and the share of the sentences that they tell which pass demotext.Judge.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"ck/internal/demotext"
	"ck/internal/generate"
)

const usage = "usage: make sample|text|score FLAGS; make sample -h, for one, shows them"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "make: error:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "make: error:", err)
		os.Exit(1)
	}
}

// errUsage is that of a command line that says nothing to do, or what cannot be done.
var errUsage = errors.New(usage)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	f := flag.NewFlagSet("make "+args[0], flag.ContinueOnError)
	f.SetOutput(stdout)
	seed := f.Uint64("seed", 1, "of all chances")
	out := f.String("o", "", "the file or folder to make; it must not be there")
	var do func() error
	switch args[0] {
	case "sample":
		model := f.String("model", "", "the model that tells the stories")
		size := f.Int64("bytes", 0, "of stories to write, at least")
		threads := f.Int("t", 1, "engines, each with a worker and 64 stories at once")
		do = func() error {
			if *out == "" || *model == "" || *size < 1 || *threads < 1 {
				return fmt.Errorf("sample needs -o, -model, -bytes and -t above zero; %w", errUsage)
			}
			return sample(ctx, *model, *out, *seed, *size, *threads, stdout)
		}
	case "text":
		data := f.String("data", "", "the folder of reference data")
		raw := f.String("samples", "", "a file of make sample; without it there are no samples")
		stories := f.Int64("stories", 6_000_000, "bytes of stories of the grammar")
		dialogues := f.Int64("dialogues", 4_000_000, "bytes of talks of the grammar")
		books := f.Int64("books", 3_000_000, "bytes of books at most")
		do = func() error {
			if *out == "" || *data == "" {
				return fmt.Errorf("text needs -o and -data; %w", errUsage)
			}
			o := options(*data)
			o.Seed, o.StoryBytes, o.DialogueBytes, o.BookMax = *seed, *stories, *dialogues, *books
			return text(*out, o, *raw, stdout)
		}
	case "score":
		path := f.String("texts", "", "a file of JSON lines {\"text\"}")
		n := f.Int("n", 500, "sentences to judge")
		do = func() error {
			if *path == "" || *n < 1 || f.NArg() == 0 {
				return fmt.Errorf("score needs -texts, -n above zero, and models; %w", errUsage)
			}
			return score(ctx, f.Args(), *path, *seed, *n, stdout)
		}
	default:
		return errUsage
	}
	if err := f.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	if f.NArg() > 0 && args[0] != "score" {
		return fmt.Errorf("%q is no flag; %w", f.Arg(0), errUsage)
	}
	return do()
}

// sample writes the stories of a model to a new file. What stands in it when it is stopped are the first stories of the same file.
func sample(ctx context.Context, model, path string, seed uint64, size int64, threads int, stdout io.Writer) error {
	m, err := generate.Open(model)
	if err != nil {
		return err
	}
	defer m.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	start := time.Now()
	n, err := samples(ctx, m, f, seed, size, threads)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %d stories of %d bytes are in it: %w", path, n.stories, n.bytes, err)
	}
	_, err = fmt.Fprintf(stdout, "%d stories, %d bytes; %d had no end within %d tokens; %.0f tokens/s\n",
		n.stories, n.bytes, n.cut, m.Context, float64(n.tokens)/time.Since(start).Seconds())
	return err
}

// books are those in simple words, the simplest first.
var books = []string{"burgess-mother-west-wind", "burgess-buster-bear", "burgess-johnny-chuck", "beatrix-potter", "raggedy-ann", "uncle-wiggily",
	"velveteen-rabbit", "baldwin-fifty-stories", "bryant-stories", "aesop-for-children", "aesop-2",
	"pinocchio", "doctor-dolittle", "alice", "oz-01", "grimm-taylor", "andersen-wilde"}

// Options of the text that are not to be chosen.
const (
	realTimes = 4
	holdOut   = 0.1
	near      = 0.7
)

// options names the sources in a folder of reference data. The small talk there is none of them: in it speak a fish, and a chatterbot with opinions and a
// memory for trivia. What a small model says of itself must be true, and it says that it does not know where it would only guess.
func options(data string) demotext.Options {
	o := demotext.Options{Stories: filepath.Join(data, "text", "stories", "tinystories.txt"), RealTimes: realTimes, HoldOut: holdOut, Near: near}
	for _, b := range books {
		o.Books = append(o.Books, filepath.Join(data, "text", "books", b+".txt"))
	}
	return o
}

// text makes the folder and all files in it.
func text(dir string, o demotext.Options, raw string, stdout io.Writer) error {
	if raw != "" {
		f, err := os.Open(raw)
		if err != nil {
			return err
		}
		list, err := demotext.ReadStories(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", raw, err)
		}
		o.Samples = slices.Values(list)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	r, err := demotext.Write(dir, o)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "report.txt"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(io.MultiWriter(f, stdout))
	err = report(w, r)
	return errors.Join(err, w.Flush(), f.Close())
}

// report writes the table of the files, and the samples that each rule has turned away; a sample may have broken several.
func report(w io.Writer, r *demotext.Report) error {
	if err := r.Table().Write(w, false); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(r.Reasons)) {
		if _, err := fmt.Fprintf(w, "samples out by rule %q: %d\n", k, r.Reasons[k]); err != nil {
			return err
		}
	}
	return nil
}
