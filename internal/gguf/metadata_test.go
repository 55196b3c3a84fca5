package gguf

import (
	"errors"
	"strings"
	"testing"
)

// A getter gives a value, says that there is none, or refuses a value of another type by key, type found and type wanted: a key of the
// wrong type is never an absent one.
func TestWrongTypeIsNotAbsent(t *testing.T) {
	kv := &Metadata{}
	values := map[string]any{"u8": uint8(1), "i8": int8(1), "u16": uint16(1), "i16": int16(1), "u32": uint32(1), "i32": int32(1), "u64": uint64(1),
		"i64": int64(1), "u64 beyond int64": uint64(1) << 63, "f32": float32(1), "f64": 1.0, "bool": true, "string": "1",
		"array of u8": []uint8{1}, "array of i64": []int64{1}, "array of u64": []uint64{1 << 63}, "array of f32": []float32{1}, "array of f64": []float64{1},
		"array of bool": []bool{true}, "array of string": []string{"1"}}
	for key, v := range values {
		kv.Set(key, v)
	}
	integers := "u8 i8 u16 i16 u32 i32 u64 i64"
	for _, g := range []struct {
		name, want string
		takes      []string // keys
		get        func(key string) (any, bool, error)
	}{
		{"String", "a string", []string{"string"}, func(k string) (any, bool, error) { v, ok, err := kv.String(k); return v, ok, err }},
		{"Bool", "a bool", []string{"bool"}, func(k string) (any, bool, error) { v, ok, err := kv.Bool(k); return v, ok, err }},
		{"Int", "an integer", strings.Fields(integers), func(k string) (any, bool, error) { v, ok, err := kv.Int(k); return v, ok, err }},
		{"Float", "a number", append(strings.Fields(integers+" f32 f64"), "u64 beyond int64"), func(k string) (any, bool, error) { v, ok, err := kv.Float(k); return v, ok, err }},
		{"Ints", "an array of integers", []string{"array of u8", "array of i64"}, func(k string) (any, bool, error) { v, ok, err := kv.Ints(k); return v, ok, err }},
		{"Float32s", "an array of numbers", []string{"array of u8", "array of i64", "array of u64", "array of f32", "array of f64"},
			func(k string) (any, bool, error) { v, ok, err := kv.Float32s(k); return v, ok, err }},
		{"Bools", "an array of bools", []string{"array of bool"}, func(k string) (any, bool, error) { v, ok, err := kv.Bools(k); return v, ok, err }},
		{"Strings", "an array of strings", []string{"array of string"}, func(k string) (any, bool, error) { v, ok, err := kv.Strings(k); return v, ok, err }},
	} {
		if _, ok, err := g.get("absent"); ok || err != nil {
			t.Errorf("%s of an absent key: %v, %v", g.name, ok, err)
		}
		for key := range values {
			takes := false
			for _, k := range g.takes {
				takes = takes || k == key
			}
			_, ok, err := g.get(key)
			if ok != takes || (err == nil) != takes {
				t.Errorf("%s of a %s: %v, %v", g.name, key, ok, err)
			}
			if err == nil {
				continue
			}
			var wrong *TypeError
			found, _, _ := strings.Cut(key, " beyond")
			if !errors.As(err, &wrong) || wrong.Key != key || !strings.HasPrefix(wrong.Found, found) || !strings.HasPrefix(wrong.Want, g.want) ||
				!strings.HasPrefix(err.Error(), key+": is of type "+found) || !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s of a %s: %v", g.name, key, err)
			}
		}
	}
}
