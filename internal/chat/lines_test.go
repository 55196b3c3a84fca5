package chat

import (
	"testing"

	"ck/internal/testkit"
)

func FuzzParseMessages(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, s := range []string{`{"role":"user","content":"a"}`, `[{"role":"user","content":"a"},{"role":"assistant","content":""}]`, `{}`, `[]`, `[1]`, `3`, `null`, `"x"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		messages, err := parseMessages([]byte(s))
		for _, m := range messages {
			if m.Role == "" || err != nil {
				t.Errorf("%q: %v, %v", s, messages, err)
			}
		}
	})
}
