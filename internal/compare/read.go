package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"ck/internal/bench"
	"ck/internal/measure"
)

// InputError says that a file holds no results.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

func inputf(format string, a ...any) error { return &InputError{fmt.Errorf(format, a...)} }

// maxResults bounds what compare reads.
const maxResults = 64 << 20

// Read reads what ckbench run prints as json or jsonl. name is for errors; those of the content are *InputError.
func Read(name string, r io.Reader) ([]*bench.Result, error) {
	var out []*bench.Result
	rest := &io.LimitedReader{R: r, N: maxResults}
	d := json.NewDecoder(rest)
	for {
		var doc struct {
			bench.Result
			Results []bench.Result `json:"results"`
			Host    *measure.Host  `json:"host"`
		}
		switch err := d.Decode(&doc); {
		case err != nil && rest.N == 0:
			return nil, inputf("%s: has more than %d MiB; compare fewer results", name, maxResults>>20)
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		case err != nil:
			return nil, unreadable(name, err)
		case doc.Schema != bench.Schema:
			return nil, inputf("%s: has schema %q, not %s; give a file that ckbench run -o json has written", name, doc.Schema, bench.Schema)
		case doc.Results == nil && doc.Test == "":
			return nil, inputf("%s: has no results; give a file that ckbench run -o json has written", name)
		case doc.Results != nil:
			for i := range doc.Results {
				r := &doc.Results[i]
				r.Host = doc.Host
				out = append(out, r)
			}
		default:
			doc.Result.Host = doc.Host
			out = append(out, &doc.Result)
		}
	}
}

// unreadable words an error of reading results.
func unreadable(name string, err error) error {
	var path *fs.PathError
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	why := ""
	switch {
	case errors.As(err, &path):
		return err
	case errors.Is(err, io.EOF):
		why = "is empty, or has no results"
	case errors.Is(err, io.ErrUnexpectedEOF):
		why = "ends within a result"
	case errors.As(err, &syntax):
		why = fmt.Sprintf("is not JSON: %v", err)
	case errors.As(err, &typ) && typ.Field == "":
		why = fmt.Sprintf("is a JSON %s, not an object", typ.Value)
	case errors.As(err, &typ):
		why = fmt.Sprintf("%q is a JSON %s", strings.TrimPrefix(typ.Field, "Result."), typ.Value)
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
	return inputf("%s: %s; give a file that ckbench run -o json has written", name, why)
}
