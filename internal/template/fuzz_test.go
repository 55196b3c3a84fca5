package template

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"ck/internal/template/value"
	"ck/internal/testkit"
)

const fuzzVars = `{"messages": [{"role": "user", "content": "Hi <|im_end|> \u00e9"}, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
"n": 5, "l": [1, 2], "d": {"b": 1, "a": [1, {"c": null}]}, "s": "Hello, W\u00f6rld!\n x ", "f": 3.25, "add_generation_prompt": true}`

// outsider is a character that texts from outside have, and nothing else in a rendering.
const outsider = "\ue000"

// withOutsiders is v with all texts from outside, each with an outsider.
func withOutsiders(v value.Value) value.Value {
	switch v := v.(type) {
	case string:
		return value.Untrusted(v + outsider + v)
	case *value.List:
		l := &value.List{Tuple: v.Tuple}
		for _, item := range v.Items {
			l.Items = append(l.Items, withOutsiders(item))
		}
		return l
	case *value.Dict:
		d := value.NewDict()
		for i, k := range v.Keys {
			d.Set(k.(string), withOutsiders(v.Vals[i]))
		}
		return d
	}
	return v
}

// checkOutsiders renders a template of any kind: what it takes for its own has nothing from outside.
func checkOutsiders(t *testing.T, tmpl *Template, vars Vars, src string, limits value.Limits) {
	outside := Vars{}
	for k, v := range vars {
		outside[k] = withOutsiders(v)
	}
	list, _ := tmpl.RenderParts(outside, Options{Now: now, Limits: limits})
	for _, p := range list {
		if p.Own && strings.Contains(p.Text, outsider) && !strings.Contains(src, outsider) && !strings.Contains(strings.ToLower(src), "e000") {
			t.Fatalf("%.200q takes %.200q for its own", src, p.Text)
		}
	}
}

// FuzzTemplate parses and renders any text: no panic (which Parse and Render would turn into an "InternalError"), no
// more time, output or memory than the limits allow, and nothing from outside that it takes for the template's own.
func FuzzTemplate(tf *testing.F) {
	f := testkit.Fuzz(tf)
	var file struct{ Probes []struct{ Template string } }
	readJSON(f, testkit.Data(f, "templates/probes.json"), &file)
	for _, p := range file.Probes {
		f.Add(p.Template)
	}
	real, err := filepath.Glob(filepath.Join(testkit.Data(f, "templates/jinja"), "*.jinja"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range real {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	for _, p := range ownProbes(f) {
		f.Add(p.Template)
	}
	for _, src := range hostile {
		f.Add(src)
	}
	vars := Vars{}
	d := fromJSON(f, []byte(fuzzVars)).(*value.Dict)
	for i, k := range d.Keys {
		vars[k.(string)] = d.Vals[i]
	}
	limits := value.Limits{Steps: 200_000, Memory: 4 << 20, Output: 1 << 20, Time: 200 * time.Millisecond}
	f.Fuzz(func(t *testing.T, src string) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		start := testkit.ThreadCPUTime(t)
		tmpl, err := Parse("fuzz", src)
		out := ""
		if err == nil {
			out, err = tmpl.Render(vars, Options{Now: now, Limits: limits})
			checkOutsiders(t, tmpl, vars, src, limits)
		}
		var e *Error
		var refused *ErrRaised
		switch {
		case errors.As(err, &e) && e.Kind == "InternalError":
			t.Fatal(err)
		case err != nil && !errors.As(err, &e) && !errors.As(err, &refused):
			t.Fatalf("error of type %T: %v", err, err)
		case len(out) > limits.Output:
			t.Fatalf("%d bytes of output", len(out))
		}
		if took := testkit.ThreadCPUTime(t) - start; took > 5*time.Second {
			t.Fatalf("took %v of CPU time", took)
		}
	})
}

// FuzzJSON: what FromJSON reads, tojson writes so that FromJSON reads the same again.
func FuzzJSON(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, s := range []string{fuzzVars, `[1e400, -0.0, 1e-7, 123456789012345678901234567890]`, `"\ud83d\ude00\u0000"`, `{"a":1,"a":2}`, `[[[]]]`, `1 2`, `{`} {
		f.Add([]byte(s))
	}
	tmpl, err := Parse("json", "{{ x|tojson }}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := value.FromJSON(data)
		if err != nil {
			return
		}
		first, err := tmpl.Render(Vars{"x": v}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := value.FromJSON([]byte(first)); err == nil { // an infinite float has no JSON
			second, err := tmpl.Render(Vars{"x": again}, Options{})
			if err != nil || second != first {
				t.Fatalf("%q, then %q, %v", first, second, err)
			}
		}
	})
}
