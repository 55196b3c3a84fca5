package template

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"ck/internal/template/value"
)

// ownProbe is one entry of testdata/probes.json: a template and what jinja2 3.1.6 (Python 3.11) makes of it, a text
// or an error.
type ownProbe struct {
	Template string
	Expected *string
	Error    string
}

// ownProbes reads testdata/probes.json. Its templates were written for this package, by hand or by a random
// generator, and rendered by jinja2 in the set-up of Hugging Face transformers with the variables of ownVars.
func ownProbes(t testing.TB) (probes []ownProbe) {
	readJSON(t, "testdata/probes.json", &probes)
	return probes
}

func ownVars(t testing.TB) Vars {
	d := fromJSON(t, []byte(`{"n": 5, "l": [1, 2], "s": "Hello, Wörld!\n  x ", "d": {"b": 1, "a": [1, {"c": null}], "é": 2.5},
"u": [{"r": "B", "k": 2}, {"r": "a", "k": 1}, {"r": "b", "k": 2}], "e": "", "f": 3.14159, "neg": -7, "w": " \t pad \n"}`)).(*value.Dict)
	vars := Vars{"big": new(big.Int).Exp(big.NewInt(10), big.NewInt(25), nil)}
	for i, k := range d.Keys {
		vars[k.(string)] = d.Vals[i]
	}
	return vars
}

func TestOwnProbes(t *testing.T) {
	vars := ownVars(t)
	probes := ownProbes(t)
	raised := 0
	for _, p := range probes {
		got, err := "", error(nil)
		tmpl, err := Parse("probe", p.Template)
		if err == nil {
			got, err = tmpl.Render(vars, Options{Now: now})
		}
		var e *Error
		var refused *ErrRaised
		switch {
		case p.Expected != nil:
			if err != nil || got != *p.Expected {
				t.Errorf("%q:\n got %q, %v\nwant %q", p.Template, got, err, *p.Expected)
			}
		case p.Error == "TemplateError":
			raised++
			if !errors.As(err, &refused) {
				t.Errorf("%q: %q, error %v, want one by raise_exception", p.Template, got, err)
			}
		default:
			raised++
			if !errors.As(err, &e) || e.Kind != p.Error {
				t.Errorf("%q: %q, error %v, want a %s", p.Template, got, err, p.Error)
			}
		}
	}
	t.Logf("%d probes, %d of them errors", len(probes), raised)
}

// TestErrorsCarryLines checks the line of an error, in macros and after them as well.
func TestErrorsCarryLines(t *testing.T) {
	for _, c := range []struct {
		src  string
		line int
		want string
	}{
		{"a\nb\n{{ 1 + 'x' }}", 3, "unsupported operand type(s) for +: 'int' and 'str'"},
		{"{% macro m() %}\n\n{{ x.y }}{% endmacro %}\n\n{{ m() }}", 3, "'x' is undefined"},
		{"{% macro m() %}\n\n1{% endmacro %}\n\n{{ m() + 1 }}", 5, "can only concatenate str"},
		{"{{ 1 }}\n{% if true %}\n{% endfor %}", 3, "unknown tag 'endfor'; the innermost open tag is 'if'"},
		{"\n\n{{ 1 | nosuch }}", 3, "no filter named 'nosuch'"},
		{"\n{% include 'x' %}", 2, "a chat template must stand alone"},
		{"\n\n{% raw %}\n\n", 3, "missing end of raw directive"},
		{"\n{{ 'a\n\nb' ~ (1\n2) }}", 5, "expected ')'"},
	} {
		tmpl, err := Parse("lines", c.src)
		if err == nil {
			_, err = tmpl.Render(nil, Options{})
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || !strings.Contains(e.Msg, c.want) || e.Template != "lines" {
			t.Errorf("%q: %v, want line %d: %s", c.src, err, c.line, c.want)
		}
	}
	tmpl, err := Parse("raise", "\n{{ raise_exception('no\nroles') }}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Render(nil, Options{})
	var refused *ErrRaised
	if !errors.As(err, &refused) || refused.Message != "no\nroles" || refused.Line != 2 {
		t.Errorf("raise_exception: %#v", err)
	}
}

// TestGoValues: what Render takes from Go, and what it refuses.
func TestGoValues(t *testing.T) {
	tmpl, err := Parse("go", "{{ x }}")
	if err != nil {
		t.Fatal(err)
	}
	d := value.NewDict().Set("b", 1).Set("a", value.NewList("x", nil)).Set("b", 2)
	for want, v := range map[string]value.Value{
		"{'b': 2, 'a': ['x', None]}": d,
		"[1, True]":                  []value.Value{1, true},
		"9223372036854775807":        int64(1<<63 - 1),
		"1.5":                        1.5,
	} {
		if got, err := tmpl.Render(Vars{"x": v}, Options{}); err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", v, got, err, want)
		}
	}
	deep := value.NewList()
	for range 1000 {
		deep = value.NewList(deep)
	}
	for _, v := range []value.Value{map[string]int{}, struct{}{}, []string{"a"}, deep} {
		if got, err := tmpl.Render(Vars{"x": v}, Options{}); err == nil {
			t.Errorf("%T: %q, want an error", v, got)
		}
	}
	if v, ok := d.Get("b"); !ok || v != 2 || d.Len() != 2 {
		t.Errorf("Get: %v, %v", v, ok)
	}
}

// TestMessagesInParallel renders one template in several goroutines.
func TestMessagesInParallel(t *testing.T) {
	tmpl, err := Parse("parallel", "{% set ns = namespace(n=0) %}{% for m in l %}{% set ns.n = ns.n + m %}{% endfor %}{{ ns.n }}{{ l }}")
	if err != nil {
		t.Fatal(err)
	}
	vars := ownVars(t)
	errs := make(chan error)
	for range 8 {
		go func() {
			got, err := tmpl.Render(vars, Options{})
			if err == nil && got != "3[1, 2]" {
				err = errors.New(got)
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
