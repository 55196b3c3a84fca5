package syntax

import "testing"

// TestErrorPositions: errors carry the line, in tags over several lines as well, and the kind that jinja2 has.
func TestErrorPositions(t *testing.T) {
	known := func(name string) any {
		if name == "known" {
			return name
		}
		return nil
	}
	for src, want := range map[string]string{
		"a\n{{ x|known }}\n{{ 'a\nb' }}{{ x is known }}": "",
		"a\n{{ x|other }}":      "line 2: TemplateAssertionError: no filter named 'other'",
		"a\n\n{{ x is other }}": "line 3: TemplateAssertionError: no test named 'other'",
		"{% if x\n%}\n{{ x|other }}": "line 3: TemplateSyntaxError: unexpected end of template; " +
			"the tag 'if' needs 'elif' or 'else' or 'endif'",
		"{% include 'x' %}": "line 1: TemplateSyntaxError: the tag 'include' needs other templates; " +
			"a chat template must stand alone",
	} {
		got := ""
		if _, err := Parse(src, Names{Filter: known, Test: known}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n got %s\nwant %s", src, got, want)
		}
	}
}
