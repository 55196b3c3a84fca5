package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"

	"ck/internal/cli"
)

// ParseIDs reads ids below vocab, separated by commas or white space, or a JSON array. where names the source in errors; bad makes those of
// words that are no ids at all.
func ParseIDs(where, s string, vocab int, bad func(string, ...any) error) ([]int32, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") {
		if !json.Valid([]byte(s)) {
			return nil, bad("%s: is not a JSON array of ids; correct it", where)
		}
		s = strings.Trim(s, "[] \t\r\n")
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	ids := make([]int32, 0, len(words))
	for i, w := range words {
		n, err := strconv.ParseInt(w, 10, 32)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return nil, bad("%s: %q is no token id; give whole numbers such as 1,2,3", where, abbreviate(w))
		case err != nil || n < 0 || n >= int64(vocab):
			return nil, cli.Input("%s: id %s at place %d is beyond the vocabulary, which has %d tokens; give ids below %d", where, abbreviate(w), i+1, vocab, vocab)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

func abbreviate(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// IDs reads the ids of --ids, at least one and all below vocab: a list, or @FILE.
func (s *Source) IDs(ctx context.Context, list string, vocab int) ([]int32, error) {
	where, bad := "--ids", cli.Usage
	if path, ok := strings.CutPrefix(list, "@"); ok {
		var err error
		switch where, bad = path, cli.Input; path {
		case "":
			return nil, cli.Usage("--ids: @ needs the name of a file, or - for stdin")
		case "-":
			where = "stdin"
			list, err = s.readStdin(ctx)
		default:
			list, err = readFile(ctx, path)
		}
		if err != nil {
			return nil, err
		}
	}
	ids, err := ParseIDs(where, list, vocab, bad)
	if err == nil && len(ids) == 0 {
		err = cli.Usage("%s: there are no ids; give at least one, such as that of BOS", where)
	}
	return ids, err
}
