package inspect

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Journal keeps results of pieces of long work in a file, a line each, so that what was interrupted goes on. The first
// line says what the results are of. A last line that was not written whole is dropped.
type Journal struct {
	mu   sync.Mutex
	f    *os.File
	done map[string]json.RawMessage
}

// JournalError says that a journal is of other work.
type JournalError struct{ Path, Why string }

func (e *JournalError) Error() string {
	return fmt.Sprintf("%s: %s; name another file, or remove it", e.Path, e.Why)
}

const journalSchema = "ck.inspect.journal/1"

type journalHead struct {
	Schema string `json:"schema"`
	Key    string `json:"key"`
}

type journalLine struct {
	Name   string          `json:"name"`
	Result json.RawMessage `json:"result"`
}

// Key identifies the model and the work that is done on it: names, shapes, types and places of its tensors, and words
// for the work and its options.
func (m *Model) Key(work ...any) string {
	h := sha256.New()
	for _, t := range m.Tensors {
		fmt.Fprintln(h, t.Name, t.Type, t.Shape, t.Offset)
	}
	fmt.Fprintln(h, m.SizeBytes(), work)
	for _, path := range m.Files() {
		if st, err := os.Stat(path); err == nil {
			fmt.Fprintln(h, st.Size(), st.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// OpenJournal opens the journal at path, or begins it. One of another key is a *JournalError; so is a file that is none.
func OpenJournal(path, key string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	j := &Journal{f: f, done: map[string]json.RawMessage{}}
	if err := j.read(path, key); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// read takes the whole lines, and leaves the file's end behind them.
func (j *Journal) read(path, key string) error {
	if st, err := j.f.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, &JournalError{path, "is no regular file"})
	}
	r, whole := bufio.NewReaderSize(j.f, 1<<20), int64(0)
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if first && len(line) > 0 {
				return &JournalError{path, "is no journal of results"}
			}
			break
		}
		if err != nil {
			return err
		}
		if first {
			var head journalHead
			if json.Unmarshal(line, &head) != nil || head.Schema != journalSchema {
				return &JournalError{path, "is no journal of results"}
			}
			if head.Key != key {
				return &JournalError{path, "has results of another model, or of other options"}
			}
		} else {
			var l journalLine
			if json.Unmarshal(line, &l) != nil {
				return &JournalError{path, fmt.Sprintf("is damaged at byte %d", whole)}
			}
			j.done[l.Name] = l.Result
		}
		whole += int64(len(line))
	}
	if err := j.f.Truncate(whole); err != nil {
		return err
	}
	if _, err := j.f.Seek(whole, io.SeekStart); err != nil || whole > 0 {
		return err
	}
	return j.write(journalHead{journalSchema, key})
}

// Found is the result of a piece that was kept.
func (j *Journal) Found(name string, result any) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	b, ok := j.done[name]
	return ok && json.Unmarshal(b, result) == nil
}

// Keep adds the result of a piece. Any goroutine may call it.
func (j *Journal) Keep(name string, result any) error {
	if j == nil {
		return nil
	}
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(journalLine{name, b})
}

// write writes one line at once.
func (j *Journal) write(v any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return err
	}
	if _, err := j.f.Write(b.Bytes()); err != nil {
		return &fs.PathError{Op: "write", Path: j.f.Name(), Err: errors.Unwrap(err)}
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return j.f.Close()
}
