package convert

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"ck/internal/aside"
)

// The journal lies beside the unfinished output. Its first line says what the output is made of, each further one
// that a tensor is on the disk, with the checksum of its bytes: the data is synced before the line is written. A line
// that a crash cut short is no line.
type journal struct {
	f    *os.File
	done map[int]journalTensor // finished tensors, by their number over all parts
}

// journalHead is the first line.
type journalHead struct {
	Schema string `json:"schema"`
	Size   int64  `json:"size"`
	Facts  []Fact `json:"facts"`
}

// journalTensor is a further line.
type journalTensor struct {
	Tensor int    `json:"tensor"`
	Name   string `json:"name"`
	CRC    uint32 `json:"crc32c"`
	Bytes  int64  `json:"bytes,omitempty"` // of a compressed output: what the tensor takes
}

const journalSchema = "ck.convert.journal/1"

// ChangedError says that a run cannot go on, because something is not what it was.
type ChangedError struct {
	Path     string // of the journal
	Name     string
	Was, Now string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: %s was %s, and is %s now; go on with what it was, or start anew with --force", e.Path,
		e.Name, orNone(e.Was), orNone(e.Now))
}

func orNone(s string) string {
	if s == "" {
		return "not given"
	}
	return s
}

// ExistsError says that an output is there already, or an unfinished one.
type ExistsError struct {
	Path       string
	Unfinished bool
}

func (e *ExistsError) Error() string {
	if e.Unfinished {
		return e.Path + ": a run that did not end has left it; --resume goes on, --force starts anew"
	}
	return e.Path + ": exists; --force overwrites it"
}

// BusyError says that another process writes the output.
type BusyError struct{ Path string }

func (e *BusyError) Error() string {
	return e.Path + ": another process is writing this output; wait for it or end it"
}

// journalPath is where the journal of a plan lies.
func (p *Plan) journalPath() string { return p.Parts[0].Path + ".part.journal" }

// partPath is the name of an unfinished part.
func (p *Part) partPath() string { return p.Path + ".part" }

// openJournal begins the journal, or reads what an earlier run left.
func (p *Plan) openJournal(resume, force bool) (*journal, error) {
	path := p.journalPath()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, &OutputError{err}
	}
	j := &journal{f: f, done: map[int]journalTensor{}}
	if !aside.Lock(f) {
		f.Close()
		return nil, &BusyError{path}
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.Size() > 0 && resume && !force:
		err = p.readJournal(j)
	case st.Size() > 0 && !force:
		err = &ExistsError{path, true}
	default:
		err = p.startJournal(j)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// startJournal writes the first line.
func (p *Plan) startJournal(j *journal) error {
	if err := j.f.Truncate(0); err != nil {
		return err
	}
	if _, err := j.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return j.append(journalHead{journalSchema, p.Size(), p.Facts})
}

// readJournal takes over an earlier run's journal. One whose first line is not whole is begun anew.
func (p *Plan) readJournal(j *journal) error {
	r := bufio.NewReader(io.LimitReader(j.f, 1<<30))
	line, whole, err := readLine(r)
	if err != nil {
		return err
	}
	if !whole {
		return p.startJournal(j)
	}
	var head journalHead
	if err := json.Unmarshal(line, &head); err != nil || head.Schema != journalSchema {
		return &ExistsError{j.f.Name(), true}
	}
	if err := p.same(j.f.Name(), head); err != nil {
		return err
	}
	end := int64(len(line)) + 1
	for names := p.names(); ; end += int64(len(line)) + 1 {
		if line, whole, err = readLine(r); err != nil {
			return err
		}
		var t journalTensor
		if !whole || json.Unmarshal(line, &t) != nil || t.Tensor < 0 || t.Tensor >= len(names) ||
			names[t.Tensor] != t.Name {
			break // what follows a torn line was never synced
		}
		j.done[t.Tensor] = t
	}
	if err := j.f.Truncate(end); err != nil {
		return err
	}
	_, err = j.f.Seek(end, io.SeekStart)
	return err
}

// readLine returns a line without its end; whole is false where the file ends within it.
func readLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	line, err = r.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return nil, false, nil
	}
	return bytes.TrimSuffix(line, []byte("\n")), err == nil, err
}

// same compares the facts of an earlier run with those of this one.
func (p *Plan) same(path string, head journalHead) error {
	was := map[string]string{}
	for _, f := range head.Facts {
		was[f.Name] = f.Value
	}
	for _, f := range p.Facts {
		if was[f.Name] != f.Value {
			return &ChangedError{path, f.Name, was[f.Name], f.Value}
		}
		delete(was, f.Name)
	}
	for _, f := range head.Facts {
		if _, left := was[f.Name]; left {
			return &ChangedError{path, f.Name, f.Value, ""}
		}
	}
	if head.Size != p.Size() {
		return &ChangedError{path, "the size of the output", fmt.Sprint(head.Size), fmt.Sprint(p.Size())}
	}
	return nil
}

// names lists the tensors of all parts.
func (p *Plan) names() []string {
	var names []string
	for _, part := range p.Parts {
		for _, t := range part.Tensors {
			names = append(names, t.From.Name)
		}
	}
	return names
}

// append writes lines and syncs them.
func (j *journal) append(lines ...any) error {
	var b []byte
	for _, l := range lines {
		line, err := json.Marshal(l)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	if _, err := j.f.Write(b); err != nil {
		return err
	}
	return j.f.Sync()
}

// remove ends the journal.
func (j *journal) remove() {
	os.Remove(j.f.Name())
	j.f.Close()
}

// exists reports whether there is a file of that name, of whatever kind.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
