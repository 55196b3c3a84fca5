// Package jsonfile decodes JSON files of others. Its errors say in the file's own words what is wrong: the key, what it is and what it
// should be; or the text before the place.
package jsonfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

const remedy = "the file is damaged or was written wrongly: download it again"

// Unmarshal is json.Unmarshal with such errors.
func Unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: is of type %.100s, wanted %s; %s", cmp.Or(wrong.Field, "the text"), wrong.Value, kind(wrong.Type), remedy)
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(b))
		return fmt.Errorf("%w at offset %d, after %q; %s", err, at, b[max(0, at-60):at], remedy)
	}
	return err
}

// kind is what a value of a Go type is written as.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Float64, reflect.Float32:
		return "a number in the range of float64"
	case reflect.Int, reflect.Int64, reflect.Int32:
		return "an integer in range"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	}
	return "an object"
}
