package jsonfile

import (
	"strings"
	"testing"
)

// Errors name the key, what was found and what was wanted; what is no JSON is shown with the text before it.
func TestErrors(t *testing.T) {
	type inner struct {
		Factor float64 `json:"factor"`
		List   []bool  `json:"list"`
	}
	var v struct {
		N     int    `json:"n"`
		S     string `json:"s"`
		B     *bool  `json:"b"`
		Inner *inner `json:"inner"`
	}
	for text, want := range map[string]string{
		`{"n": "x"}`:                   "n: is of type string, wanted an integer in range; ",
		`{"n": 1.5}`:                   "n: is of type number 1.5, wanted an integer in range; ",
		`{"s": [1]}`:                   "s: is of type array, wanted a string; ",
		`{"b": 1}`:                     "b: is of type number, wanted true or false; ",
		`{"inner": true}`:              "inner: is of type bool, wanted an object; ",
		`{"inner": {"factor": 1e999}}`: "inner.factor: is of type number 1e999, wanted a number in the range of float64; ",
		`{"inner": {"list": {}}}`:      "inner.list: is of type object, wanted an array; ",
		`[1]`:                          "the text: is of type array, wanted an object; ",
		`{"s": "x", "n": NaN}`:         `invalid character 'N' looking for beginning of value at offset 17, after "{\"s\": \"x\", \"n\": N"; `,
		`{"s": "x"`:                    `unexpected end of JSON input at offset 9, after `,
	} {
		if err := Unmarshal([]byte(text), &v); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), remedy) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
	if err := Unmarshal([]byte(`{"n": 3, "unknown": "x", "inner": null}`), &v); err != nil || v.N != 3 {
		t.Errorf("a sound file: %v", err)
	}
}
