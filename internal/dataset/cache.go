package dataset

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/aside"
	"ck/internal/generate"
)

// Tokens of files are kept in a file NAME.HASH.cktokens. NAME is that of the first file; HASH is of all that decides the tokens but for the
// bytes of the files, so that data that changed replaces its file. It is
//
//	"cktokens\n", the version as uint32, the length of the header as uint32
//	the header, JSON: see header
//	ends [sequences]int64 and words [tokens]int32 of what is trained with, then of what is held out; see list.write
//	SHA-256 of all before it
//
// in little-endian. The header has the key: SHA-256 of HASH and the bytes of the files. A file with another key, of another size, with another sum
// or with anything that does not fit is as good as none.
const (
	magic = "cktokens\n"

	// version changes with whatever changes the tokens of the same files: this package, templates, tokenizers.
	version = 1

	maxHeader = 1 << 20 // bytes
)

// header says what a file of tokens holds.
type header struct {
	Key        string
	Stats      Stats
	Train, Val counts
}

type counts struct{ Sequences, Tokens, Examples int }

func (l *list) counts() counts { return counts{len(l.ends), len(l.words), l.examples} }

// bytes is the size of a list; -1 if it cannot be.
func (c counts) bytes() int64 {
	if c.Sequences < 0 || c.Tokens < 0 || c.Examples < 0 || c.Sequences > c.Tokens || c.Examples > c.Sequences || int64(c.Tokens) > 1<<50 {
		return -1
	}
	return 8*int64(c.Sequences) + 4*int64(c.Tokens)
}

// load takes the tokens from their file, or makes and keeps them.
func (s *Set) load(ctx context.Context, m *generate.Model, files []file) error {
	if s.opt.NoCache {
		_, err := s.build(ctx, m, files)
		return err
	}
	base, err := s.decides(m, files)
	if err != nil {
		return err
	}
	dir := s.opt.CacheDir
	if dir == "" {
		dir = filepath.Dir(files[0].path)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s.%x.cktokens", filepath.Base(files[0].path), base[:8]))
	found, err := s.kept(ctx, m, path, base, files)
	if found || err != nil {
		return err
	}
	sum, err := s.build(ctx, m, files)
	if err == nil {
		s.CacheErr = s.keep(path, key(base, sum))
	}
	return err
}

// key is what a file of tokens belongs to.
func key(base, data []byte) string {
	sum := sha256.Sum256(append(slices.Clone(base), data...))
	return hex.EncodeToString(sum[:])
}

// build makes the tokens, and returns the hash of the files that it has read.
func (s *Set) build(ctx context.Context, m *generate.Model, files []file) ([]byte, error) {
	s.Stats = Stats{}
	b := builder{encoder: encoder{m, &s.opt, &s.Stats}}
	src := newSource(ctx)
	for _, f := range files {
		take := func(n int, parse func() (record, error)) error {
			r, err := parse()
			if err == nil {
				err = b.add(r, f.path, n)
			}
			if err != nil && s.Stats.Skipped < s.opt.SkipBadLines {
				s.Stats.Skipped++
				s.Stats.bad(f.path, n, err)
				err = nil
			}
			if err != nil {
				return &LineError{f.path, n, err}
			}
			return ctx.Err()
		}
		if err := src.eachRecord(f, take); err != nil {
			return nil, err
		}
	}
	s.Stats.Lost = m.Tok.Lost()
	s.train, s.val = b.train, b.val
	return src.sum.Sum(nil), nil
}

// decides is the hash of all that decides the tokens but for the bytes of the files.
func (s *Set) decides(m *generate.Model, files []file) ([]byte, error) {
	h := sha256.New()
	o := &s.opt
	put := func(what, text string) { fmt.Fprintf(h, "%s %d %s\n", what, len(text), text) }
	put("options", fmt.Sprintf("%d %d %s %v %d", version, o.Tokens, o.TooLong, o.Val, o.SkipBadLines))
	if o.Template != nil {
		put("template", o.Template.Source())
		put("vars", fmt.Sprintf("%v", o.Vars))
		put("now", o.Now.String())
	}
	for _, f := range files {
		put("file", f.path)
	}
	err := identify(m, put)
	return h.Sum(nil), err
}

// ofFolder are the files of a folder that its tokenizer is made of.
var ofFolder = []string{"tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"generation_config.json"}

// identify puts what makes a tokenizer into a hash: the keys of the model's file, or the files of its folder.
func identify(m *generate.Model, put func(what, text string)) error {
	known := false
	err := m.Weights.Guard(func() error {
		keys := m.Weights.KV.Keys()
		slices.Sort(keys)
		for _, k := range keys {
			if !strings.HasPrefix(k, "tokenizer.") {
				continue
			}
			known = true
			if v, ok := m.Weights.KV.Value(k).([]string); ok {
				put(k, fmt.Sprintf("%d strings", len(v)))
				for _, x := range v {
					put("", x)
				}
				continue
			}
			put(k, fmt.Sprintf("%v", m.Weights.KV.Value(k)))
		}
		return nil
	})
	if known || err != nil {
		return err
	}
	for _, name := range ofFolder {
		f, err := os.Open(filepath.Join(m.Path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			sum := sha256.New()
			_, err = io.Copy(sum, f)
			f.Close()
			put(name, string(sum.Sum(nil)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kept takes the tokens from a file, if there is one that belongs to the data. It reads all the data for that.
func (s *Set) kept(ctx context.Context, m *generate.Model, path string, base []byte, files []file) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, nil // there is none that can be used
	}
	defer f.Close()
	sum := sha256.New()
	in := io.TeeReader(f, sum)
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false, nil
	}
	head, n, err := readHeader(in)
	if err != nil || n+head.Train.bytes()+head.Val.bytes()+sha256.Size != st.Size() {
		return false, nil
	}
	src := newSource(ctx)
	for _, f := range files {
		if err := src.read(f, func(*bufio.Reader) error { return nil }); err != nil {
			return false, err
		}
	}
	if head.Key != key(base, src.sum.Sum(nil)) {
		return false, nil
	}
	return s.take(in, sum, head, m.Tok.VocabSize()), nil
}

// readHeader reads the header of a file of tokens, and says how many bytes lie before the lists.
func readHeader(in io.Reader) (h header, n int64, err error) {
	var fixed [len(magic) + 8]byte
	if _, err := io.ReadFull(in, fixed[:]); err != nil {
		return h, 0, err
	}
	size := binary.LittleEndian.Uint32(fixed[len(magic)+4:])
	if string(fixed[:len(magic)]) != magic || binary.LittleEndian.Uint32(fixed[len(magic):]) != version || size > maxHeader {
		return h, 0, errors.New("no file of tokens")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		return h, 0, err
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, 0, err
	}
	if h.Train.bytes() < 0 || h.Val.bytes() < 0 {
		return h, 0, errors.New("no sizes")
	}
	return h, int64(len(fixed)) + int64(size), nil
}

// take takes the lists; false if the file is damaged. sum is of what was read so far.
func (s *Set) take(in io.Reader, sum hash.Hash, head header, vocab int) bool {
	var lists [2]list
	for i, c := range []counts{head.Train, head.Val} {
		if !lists[i].read(in, c, vocab) {
			return false
		}
	}
	want := sum.Sum(nil)
	var got [sha256.Size]byte
	if _, err := io.ReadFull(in, got[:]); err != nil || !bytes.Equal(got[:], want) {
		return false
	}
	s.Stats, s.train, s.val, s.FromCache = head.Stats, lists[0], lists[1], true
	return true
}

// read reads what write wrote; false if it does not fit. The sizes are those of the file.
func (l *list) read(in io.Reader, c counts, vocab int) bool {
	l.ends, l.words, l.examples = make([]int, 0, c.Sequences), make([]int32, 0, c.Tokens), c.Examples
	last, sound := 0, true
	read := func(bytes, width int, each func(b []byte)) bool {
		buf := make([]byte, min(bytes, 1<<16))
		for bytes > 0 && sound {
			b := buf[:min(bytes, len(buf))]
			if _, err := io.ReadFull(in, b); err != nil {
				return false
			}
			for bytes -= len(b); len(b) > 0; b = b[width:] {
				each(b)
			}
		}
		return sound
	}
	if !read(8*c.Sequences, 8, func(b []byte) {
		e := binary.LittleEndian.Uint64(b)
		sound = sound && e > uint64(last) && e <= uint64(c.Tokens)
		last = int(e)
		l.ends = append(l.ends, last)
	}) {
		return false
	}
	return last == c.Tokens && read(4*c.Tokens, 4, func(b []byte) {
		w := int32(binary.LittleEndian.Uint32(b))
		sound = sound && int(token(w)) < vocab
		if w < 0 {
			l.targets++
		}
		l.words = append(l.words, w)
	})
}

// keep writes the tokens into a file, which appears whole or not at all.
func (s *Set) keep(path, key string) (err error) {
	text, err := json.Marshal(header{key, s.Stats, s.train.counts(), s.val.counts()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cktokens-*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<18)
	var b bytes.Buffer
	b.WriteString(magic)
	b.Write(binary.LittleEndian.AppendUint32(nil, version))
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	b.Write(text)
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	for _, l := range []*list{&s.train, &s.val} {
		if err := l.write(w); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := f.Write(sum.Sum(nil)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := aside.Rename(f.Name(), path, true); err != nil {
		return err
	}
	aside.SyncFolder(path)
	return nil
}
