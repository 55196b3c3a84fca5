package page

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"unicode"

	"ck/internal/plaintext"
	"ck/internal/topo"
)

// document is what WriteJSON prints. The names of its facts are those of topo.Survey in snake case.
type document struct {
	Schema string
	Root   string
	topo.Survey
	Workers struct {
		CPUs []int
		Why  string
	}
	MemoryAvailable struct {
		Bytes int64
		Why   string
	}
	Homes     []topo.Home // cores and memory that belong together
	HomesNote []string
}

// WriteJSON prints the document of a machine, schema ck.topo/1. root is the saved tree that it was read from, "" for this machine.
func WriteJSON(w io.Writer, s *topo.Survey, root string) error {
	d := document{Schema: "ck.topo/1", Root: root, Survey: *s}
	// What "gather" leaves out is not told here either: documents are pasted into public places as pages are.
	d.CXL.Memories = slices.Clone(d.CXL.Memories)
	for i := range d.CXL.Memories {
		d.CXL.Memories[i].Serial = ""
	}
	d.CXL.Regions = slices.Clone(d.CXL.Regions)
	for i := range d.CXL.Regions {
		d.CXL.Regions[i].UUID = ""
	}
	d.Workers.CPUs, d.Workers.Why = s.Workers()
	d.Homes, d.HomesNote = s.Homes()
	d.MemoryAvailable.Bytes, d.MemoryAvailable.Why = s.Machine.Memory()
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if b, err = snakeKeys(b); err != nil {
		return err
	}
	return plaintext.EncodeJSON(w, json.RawMessage(b))
}

// snakeKeys rewrites the keys of all objects of a JSON document. Their order stays.
func snakeKeys(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out bytes.Buffer
	type level struct {
		object bool
		n      int // tokens so far
	}
	stack := []level{{}}
	for {
		t, err := d.Token()
		if err == io.EOF {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		if delim, ok := t.(json.Delim); ok && (delim == ']' || delim == '}') {
			stack = stack[:len(stack)-1]
			out.WriteRune(rune(delim))
			continue
		}
		top := &stack[len(stack)-1]
		key := top.object && top.n%2 == 0
		switch {
		case top.object && top.n%2 == 1:
			out.WriteByte(':')
		case top.n > 0:
			out.WriteByte(',')
		}
		top.n++
		switch v := t.(type) {
		case json.Delim:
			out.WriteRune(rune(v))
			stack = append(stack, level{object: v == '{'})
			continue
		case string:
			if key {
				t = snake(v)
			}
		}
		e, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		out.Write(e)
	}
}

// snake writes a Go name in snake case; runs of capitals are one word: "MemTotal" is mem_total, "SMTControl" smt_control, "CPUs" cpus.
// Names that are no Go names (of counters) have no capitals.
func snake(s string) string {
	r := []rune(s)
	var b strings.Builder
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 {
			next := i+1 < len(r) && unicode.IsLower(r[i+1])
			plural := next && r[i+1] == 's' && (i+2 == len(r) || unicode.IsUpper(r[i+2]))
			if !unicode.IsUpper(r[i-1]) || next && !plural {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
