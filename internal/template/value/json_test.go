package value

import (
	"slices"
	"strings"
	"testing"
)

// TestFromJSON: what is no JSON value or too deep is refused; keys stay in the order of the text, the last value of a
// key counts.
func TestFromJSON(t *testing.T) {
	for _, bad := range []string{"", "{", "[1,]", "1 2", "{\"a\":1} x", strings.Repeat("[", 100000),
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000), strings.Repeat("9", 5000), "nul"} {
		if v, err := FromJSON([]byte(bad)); err == nil {
			t.Errorf("%.20q: %v, want an error", bad, v)
		}
	}
	v, err := FromJSON([]byte(` {"b": 1, "a": [1.0, null, true, 12345678901234567890], "b": "x"} `))
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*Dict)
	if keys := d.Keys; !slices.Equal(keys, []Value{"b", "a"}) {
		t.Errorf("keys %q", keys)
	}
	a, _ := d.Get("a")
	if items := a.(*List).Items; len(items) != 4 || items[0] != 1.0 || items[1] != nil || items[2] != true {
		t.Errorf("items %v", items)
	}
}
