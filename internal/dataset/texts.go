package dataset

import "context"

// EachText calls do with the texts of the examples of files, in order, for those who learn of the words alone: a document; a prompt with its completion;
// the roles of a conversation, what is said and what it was reasoned with, one by one. read is how many bytes of the files were read by then. Of
// Stats there are Examples, Skipped and Bad. Errors are those of Open, or do's.
func EachText(ctx context.Context, paths []string, skipBadLines int, do func(text string, read int64) error) (Stats, error) {
	var st Stats
	files, err := openable(paths)
	if err != nil {
		return st, err
	}
	src := newSource(ctx)
	for _, f := range files {
		err := src.eachRecord(f, func(n int, parse func() (record, error)) error {
			r, err := parse()
			switch {
			case err != nil && st.Skipped < skipBadLines:
				st.Skipped++
				st.bad(f.path, n, err)
				return ctx.Err()
			case err != nil:
				return &LineError{f.path, n, err}
			}
			st.Examples++
			for _, text := range r.texts() {
				if err := do(text, src.bytes); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return st, err
		}
	}
	return st, nil
}

// texts are those that the example is made of.
func (r *record) texts() []string {
	switch r.form {
	case document:
		return []string{r.text}
	case completed:
		return []string{r.prompt + r.completion}
	}
	var list []string
	for _, m := range r.messages {
		for _, text := range []string{m.Role, m.Reasoning, m.Content} {
			if text != "" {
				list = append(list, text)
			}
		}
	}
	return list
}
