package template

import (
	"testing"

	"ck/internal/template/value"
)

// TestCounts: what renderings count of their limits. A template passes with just as many steps and bytes, and fails
// with one less.
func TestCounts(t *testing.T) {
	vars := Vars{"n": 5, "s": "a <b>", "l": value.NewList(1, 2), "d": value.NewDict().Set("a", value.NewList(1, nil)), "c": value.Untrusted("<|IM|> x")}
	for _, c := range []struct {
		src           string
		steps, memory int
	}{
		{"{{ s }}", 2, 10},
		{"{{ s|e }}", 3, 47},
		{"{{ c|e }}", 3, 68},
		{"{{ '%5d|%s' % (n, c) }}", 8, 240},
		{"{{ '{:>9}'.format(s) }}", 6, 94},
		{"{{ strftime_now('%c') }}", 8, 100},
		{"{{ d|tojson }}", 10, 280},
		{"{% for i in l %}{{ loop.index }}{% endfor %}", 19, 8},
		{"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(c) }}", 10, 224},
	} {
		tmpl, err := Parse("counts", c.src)
		if err != nil {
			t.Fatal(err)
		}
		limits := value.Limits{Steps: c.steps, Memory: c.memory}
		if _, err := tmpl.Render(vars, Options{Now: now, Limits: limits}); err != nil {
			t.Errorf("%s: %v", c.src, err)
		}
		for _, less := range []value.Limits{{Steps: c.steps - 1}, {Memory: c.memory - 1}} {
			_, err := tmpl.Render(vars, Options{Now: now, Limits: less})
			if e, ok := err.(*Error); !ok || e.Kind != "LimitError" {
				t.Errorf("%s with %+v: error %v, want a LimitError", c.src, less, err)
			}
		}
	}
}
