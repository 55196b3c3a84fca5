package dataset

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	// documentEnd is the line that ends a document of a text file. It is never text.
	documentEnd = "<|endoftext|>"

	maxLine = 64 << 20 // bytes of a line of JSON, and of a document
)

// file is a file of examples.
type file struct {
	path  string
	lines bool // of JSON; else text
}

// openable says of which kind files are.
func openable(paths []string) ([]file, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: no file is named", ErrEmpty)
	}
	files := make([]file, len(paths))
	for i, path := range paths {
		files[i].path = path
		switch e := strings.ToLower(filepath.Ext(path)); e {
		case ".jsonl", ".ndjson":
			files[i].lines = true
		case ".txt", ".text", ".md":
		default:
			return nil, &LineError{path, 0, fmt.Errorf("the ending %.20q says neither text nor lines of JSON; name text .txt or .md, lines of JSON .jsonl", e)}
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fileError(path, err)
		case st.IsDir():
			return nil, &LineError{path, 0, errors.New("is a folder; name its files")}
		case !st.Mode().IsRegular():
			return nil, &LineError{path, 0, errors.New("is no regular file, and is read twice; write it to one")}
		}
	}
	return files, nil
}

// fileError is a *LineError of a file as a whole, its path said once.
func fileError(path string, err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		err = e.Err
	}
	return &LineError{Path: path, Err: err}
}

// source reads the bytes of files in one order, and has their hash: of the kind, the length and the bytes of each.
type source struct {
	ctx   context.Context
	sum   hash.Hash
	bytes int64 // that were read
}

func newSource(ctx context.Context) *source { return &source{ctx: ctx, sum: sha256.New()} }

// read gives the bytes of a file to use, and to the hash. What use leaves unread is read behind it.
func (s *source) read(f file, use func(in *bufio.Reader) error) error {
	in, err := os.Open(f.path)
	if err != nil {
		return fileError(f.path, err)
	}
	defer in.Close()
	sum := sha256.New()
	n := int64(0)
	b := bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		k, err := in.Read(p)
		sum.Write(p[:k])
		n += int64(k)
		s.bytes += int64(k)
		return k, err
	}), 1<<20)
	if err := use(b); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, b); err != nil {
		return s.failed(f.path, err)
	}
	fmt.Fprintf(s.sum, "%v %d %x\n", f.lines, n, sum.Sum(nil))
	return nil
}

// failed is the error of a file that could not be read to its end.
func (s *source) failed(path string, err error) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	return fileError(path, err)
}

// eachRecord calls take with the examples of a file and the numbers of their lines; parse has what is wrong with one.
func (s *source) eachRecord(f file, take func(n int, parse func() (record, error)) error) error {
	return s.read(f, func(in *bufio.Reader) error {
		if f.lines {
			return s.eachLine(f.path, in, func(n int, line []byte) error {
				return take(n, func() (record, error) { return parseRecord(line) })
			})
		}
		return s.eachDocument(f.path, in, func(n int, text string) error {
			return take(n, func() (record, error) { return record{form: document, text: text}, nil })
		})
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// errLine is that a line is too long: there is no way to skip it.
var errLine = fmt.Errorf("is longer than %d MiB; cut it into shorter ones", maxLine>>20)

// line reads a line with its end; io.EOF behind the last.
func line(in *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(b)+len(part) > maxLine {
			return nil, errLine
		}
		b = append(b, part...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(b) > 0, err == nil:
			return b, nil
		}
		return nil, err
	}
}

// mark is what some editors put before UTF-8. It is no text.
var mark = []byte("\ufeff")

// eachLine calls do with the lines of a file that are not blank, and their numbers.
func (s *source) eachLine(path string, in *bufio.Reader, do func(n int, text []byte) error) error {
	for n := 1; ; n++ {
		b, err := line(in)
		switch {
		case err == io.EOF:
			return nil
		case err == errLine:
			return &LineError{path, n, err}
		case err != nil:
			return s.failed(path, err)
		}
		if n == 1 {
			b = bytes.TrimPrefix(b, mark)
		}
		if b = bytes.TrimSpace(b); len(b) == 0 {
			continue
		}
		if err := do(n, b); err != nil {
			return err
		}
	}
}

// eachDocument calls do with the documents of a file, the empty lines around them left out, and the number of the line that each begins with.
func (s *source) eachDocument(path string, in *bufio.Reader, do func(n int, text string) error) error {
	var doc []byte
	first := 1
	end := func(next int) error {
		at, text := first, doc
		for len(text) > 0 && (text[0] == '\n' || text[0] == '\r') {
			if text[0] == '\n' {
				at++
			}
			text = text[1:]
		}
		s := string(bytes.TrimRight(text, "\r\n"))
		doc, first = doc[:0], next
		if s == "" {
			return nil
		}
		return do(at, s)
	}
	for n := 1; ; n++ {
		b, err := line(in)
		switch {
		case err == io.EOF:
			return end(n)
		case err == errLine:
			return &LineError{path, n, err}
		case err != nil:
			return s.failed(path, err)
		}
		if n == 1 {
			b = bytes.TrimPrefix(b, mark)
		}
		switch {
		case string(bytes.TrimRight(b, "\r\n")) == documentEnd:
			if err := end(n + 1); err != nil {
				return err
			}
			continue
		case !utf8.Valid(b): // such a file is no text, or of another encoding: what is around the line is not to be trusted
			return &LineError{path, n, errors.New("is not UTF-8; convert the file")}
		case len(doc)+len(b) > maxLine:
			return &LineError{path, first, fmt.Errorf("a document of more than %d MiB; end documents with lines %s", maxLine>>20, documentEnd)}
		}
		doc = append(doc, b...)
	}
}
