package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// valueType is the type of a metadata value; the numbers are those of the files.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
	typeCount
)

var typeNames = [typeCount]string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}

func (t valueType) String() string {
	if t < typeCount {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// size is the number of bytes of a scalar, 0 for other types.
func (t valueType) size() int {
	switch t {
	case typeUint8, typeInt8, typeBool:
		return 1
	case typeUint16, typeInt16:
		return 2
	case typeUint32, typeInt32, typeFloat32:
		return 4
	case typeUint64, typeInt64, typeFloat64:
		return 8
	}
	return 0
}

// Metadata is the ordered list of a model's keys and values. Values read from a file stay there: arrays are decoded each time that
// they are asked for (keep the result), and not after the model is closed. Concurrent reads are allowed.
type Metadata struct {
	entries []entry
	index   map[string]int
}

// entry is a key with its value as the file has it, whose extent and booleans were checked.
type entry struct {
	key  string
	typ  valueType
	elem valueType // of an array
	n    int       // elements of an array
	raw  []byte    // a scalar's bytes, a string's, or an array's elements with their lengths, little endian
}

// add appends an entry; false if the key is there already.
func (m *Metadata) add(e entry) bool {
	if m.index == nil {
		m.index = map[string]int{}
	}
	if _, dup := m.index[e.key]; dup {
		return false
	}
	m.index[e.key] = len(m.entries)
	m.entries = append(m.entries, e)
	return true
}

func (m *Metadata) find(key string) *entry {
	if i, ok := m.index[key]; ok {
		return &m.entries[i]
	}
	return nil
}

// Keys lists the keys in the file's order.
func (m *Metadata) Keys() []string {
	keys := make([]string, len(m.entries))
	for i, e := range m.entries {
		keys[i] = e.key
	}
	return keys
}

// TypeError says that a key is there with a value of another type than its reader can use.
type TypeError struct {
	Key   string
	Found string // "string", "array of u8", or the number that does not fit
	Want  string // "an integer", "an array of strings"
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("%s: is of type %s, wanted %s; the file is damaged or was written wrongly: download or convert it again", e.Key, e.Found, e.Want)
}

// The getters below return the value of a key; ok is false where there is no such key. A value of another type is not an absent one:
// it is a *TypeError. Integers of any width whose value fits are one kind; every number is a float; nothing else is converted.

// String is the value of a key of type string. The bytes need not be UTF-8.
func (m *Metadata) String(key string) (v string, ok bool, err error) {
	e := m.find(key)
	if e == nil {
		return "", false, nil
	}
	if e.typ != typeString {
		return "", false, e.wanted("a string")
	}
	return string(e.raw), true, nil
}

// Bool is the value of a key of type bool.
func (m *Metadata) Bool(key string) (v, ok bool, err error) {
	return scalar(m, key, "a bool", func(t valueType, b []byte) (bool, bool) { return b[0] != 0, t == typeBool })
}

// Int is the value of a key of any integer type. One beyond an int64 is an error.
func (m *Metadata) Int(key string) (v int64, ok bool, err error) {
	return scalar(m, key, "an integer", integer)
}

// Float is the value of a key of any number type.
func (m *Metadata) Float(key string) (v float64, ok bool, err error) {
	return scalar(m, key, "a number", float)
}

// Ints is the value of an array of any integer type. An element beyond an int64 is an error.
func (m *Metadata) Ints(key string) (v []int64, ok bool, err error) {
	return array(m, key, "an array of integers", integer)
}

// Float32s is the value of an array of any number type, rounded to float32.
func (m *Metadata) Float32s(key string) (v []float32, ok bool, err error) {
	return array(m, key, "an array of numbers", func(t valueType, b []byte) (float32, bool) {
		v, ok := float(t, b)
		return float32(v), ok
	})
}

// Bools is the value of an array of bool.
func (m *Metadata) Bools(key string) (v []bool, ok bool, err error) {
	return array(m, key, "an array of bools", func(t valueType, b []byte) (bool, bool) { return b[0] != 0, t == typeBool })
}

// Strings is the value of an array of strings. The strings share one copy of the file's bytes.
func (m *Metadata) Strings(key string) (v []string, ok bool, err error) {
	e := m.find(key)
	if e == nil {
		return nil, false, nil
	}
	if e.typ != typeArray || e.elem != typeString {
		return nil, false, e.wanted("an array of strings")
	}
	return e.strings(), true, nil
}

// wanted is the error of a reader that e is of no use to.
func (e *entry) wanted(want string) error {
	found := e.typ.String()
	switch {
	case e.typ == typeArray:
		found = "array of " + e.elem.String()
		if e.elem == typeUint64 && want == "an array of integers" {
			want += " below 2^63"
		}
	case e.typ == typeUint64 && want == "an integer":
		found = fmt.Sprintf("u64 and %d", binary.LittleEndian.Uint64(e.raw))
		want += " below 2^63"
	}
	return &TypeError{e.key, found, want}
}

// scalar decodes the one value at key.
func scalar[T any](m *Metadata, key, want string, decode func(valueType, []byte) (T, bool)) (v T, ok bool, err error) {
	e := m.find(key)
	if e == nil {
		return v, false, nil
	}
	if e.typ.size() > 0 {
		if v, ok = decode(e.typ, e.raw); ok {
			return v, true, nil
		}
	}
	var zero T
	return zero, false, e.wanted(want)
}

// array decodes the elements of fixed size at key. An empty array must have a type that decode takes, too.
func array[T any](m *Metadata, key, want string, decode func(valueType, []byte) (T, bool)) ([]T, bool, error) {
	e := m.find(key)
	if e == nil {
		return nil, false, nil
	}
	if e.typ != typeArray || e.elem.size() == 0 {
		return nil, false, e.wanted(want)
	}
	size := e.elem.size()
	if _, ok := decode(e.elem, make([]byte, 8)); !ok {
		return nil, false, e.wanted(want)
	}
	out := make([]T, e.n)
	for i := range out {
		var ok bool
		if out[i], ok = decode(e.elem, e.raw[i*size:][:size]); !ok {
			return nil, false, e.wanted(want)
		}
	}
	return out, true, nil
}

// strings are the elements of an array of strings.
func (e *entry) strings() []string {
	all := string(e.raw)
	out := make([]string, e.n)
	for i, at := 0, 0; i < e.n; i++ {
		n := int(binary.LittleEndian.Uint64(e.raw[at:]))
		out[i] = all[at+8 : at+8+n]
		at += 8 + n
	}
	return out
}

// Value is the value of a key as the Go type of its own type: uint8 … float64, bool, string, or a slice of these; nil if there is
// no such key.
func (m *Metadata) Value(key string) any {
	e := m.find(key)
	switch {
	case e == nil:
		return nil
	case e.typ == typeString:
		return string(e.raw)
	case e.typ != typeArray:
		return decodeAny(e.typ, e.raw, 1, false)
	case e.elem == typeString:
		return e.strings()
	}
	return decodeAny(e.elem, e.raw, e.n, true)
}

// decodeAny decodes n values of a fixed-size type, to a slice or to the one value.
func decodeAny(t valueType, raw []byte, n int, slice bool) any {
	switch t {
	case typeUint8:
		return decodeAs[uint8](raw, n, slice)
	case typeInt8:
		return decodeAs[int8](raw, n, slice)
	case typeUint16:
		return decodeAs[uint16](raw, n, slice)
	case typeInt16:
		return decodeAs[int16](raw, n, slice)
	case typeUint32:
		return decodeAs[uint32](raw, n, slice)
	case typeInt32:
		return decodeAs[int32](raw, n, slice)
	case typeFloat32:
		return decodeAs[float32](raw, n, slice)
	case typeBool:
		return decodeAs[bool](raw, n, slice)
	case typeUint64:
		return decodeAs[uint64](raw, n, slice)
	case typeInt64:
		return decodeAs[int64](raw, n, slice)
	case typeFloat64:
		return decodeAs[float64](raw, n, slice)
	}
	panic("gguf: " + t.String() + " has no fixed size")
}

func decodeAs[T any](raw []byte, n int, slice bool) any {
	out := make([]T, n)
	if _, err := binary.Decode(raw, binary.LittleEndian, out); err != nil {
		panic(err) // the reader has checked the length
	}
	if slice {
		return out
	}
	return out[0]
}

// integer decodes a number of an integer type.
func integer(t valueType, b []byte) (int64, bool) {
	le := binary.LittleEndian
	switch t {
	case typeUint8:
		return int64(b[0]), true
	case typeInt8:
		return int64(int8(b[0])), true
	case typeUint16:
		return int64(le.Uint16(b)), true
	case typeInt16:
		return int64(int16(le.Uint16(b))), true
	case typeUint32:
		return int64(le.Uint32(b)), true
	case typeInt32:
		return int64(int32(le.Uint32(b))), true
	case typeUint64:
		v := le.Uint64(b)
		return int64(v), v <= math.MaxInt64
	case typeInt64:
		return int64(le.Uint64(b)), true
	}
	return 0, false
}

// float decodes a number of any type.
func float(t valueType, b []byte) (float64, bool) {
	switch t {
	case typeFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case typeFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case typeUint64:
		return float64(binary.LittleEndian.Uint64(b)), true
	}
	v, ok := integer(t, b)
	return float64(v), ok
}

// Set gives key a value of one of the types that Value returns, at the key's old place or at the end. It panics if the type is
// another one: int has no counterpart in the format, and the programs that read the file ask for exact types.
func (m *Metadata) Set(key string, value any) {
	e := encode(value)
	e.key = key
	if old := m.find(key); old != nil {
		*old = e
		return
	}
	m.add(e)
}

func encode(value any) entry {
	switch v := value.(type) {
	case string:
		return entry{typ: typeString, raw: []byte(v)}
	case []string:
		var raw []byte
		for _, s := range v {
			raw = append(binary.LittleEndian.AppendUint64(raw, uint64(len(s))), s...)
		}
		return entry{typ: typeArray, elem: typeString, n: len(v), raw: raw}
	case uint8:
		return entry{typ: typeUint8, raw: fixed(v)}
	case int8:
		return entry{typ: typeInt8, raw: fixed(v)}
	case uint16:
		return entry{typ: typeUint16, raw: fixed(v)}
	case int16:
		return entry{typ: typeInt16, raw: fixed(v)}
	case uint32:
		return entry{typ: typeUint32, raw: fixed(v)}
	case int32:
		return entry{typ: typeInt32, raw: fixed(v)}
	case float32:
		return entry{typ: typeFloat32, raw: fixed(v)}
	case bool:
		return entry{typ: typeBool, raw: fixed(v)}
	case uint64:
		return entry{typ: typeUint64, raw: fixed(v)}
	case int64:
		return entry{typ: typeInt64, raw: fixed(v)}
	case float64:
		return entry{typ: typeFloat64, raw: fixed(v)}
	case []uint8:
		return entry{typ: typeArray, elem: typeUint8, n: len(v), raw: bytes.Clone(v)}
	case []int8:
		return entry{typ: typeArray, elem: typeInt8, n: len(v), raw: fixed(v)}
	case []uint16:
		return entry{typ: typeArray, elem: typeUint16, n: len(v), raw: fixed(v)}
	case []int16:
		return entry{typ: typeArray, elem: typeInt16, n: len(v), raw: fixed(v)}
	case []uint32:
		return entry{typ: typeArray, elem: typeUint32, n: len(v), raw: fixed(v)}
	case []int32:
		return entry{typ: typeArray, elem: typeInt32, n: len(v), raw: fixed(v)}
	case []float32:
		return entry{typ: typeArray, elem: typeFloat32, n: len(v), raw: fixed(v)}
	case []bool:
		return entry{typ: typeArray, elem: typeBool, n: len(v), raw: fixed(v)}
	case []uint64:
		return entry{typ: typeArray, elem: typeUint64, n: len(v), raw: fixed(v)}
	case []int64:
		return entry{typ: typeArray, elem: typeInt64, n: len(v), raw: fixed(v)}
	case []float64:
		return entry{typ: typeArray, elem: typeFloat64, n: len(v), raw: fixed(v)}
	}
	panic(fmt.Sprintf("gguf: metadata cannot hold a %T", value))
}

// fixed encodes a fixed-size value or a slice of them.
func fixed(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err) // encode passes only types that have a fixed size
	}
	return b
}

// Clone is a copy of the list; the values are shared.
func (m *Metadata) Clone() *Metadata {
	c := &Metadata{}
	for _, e := range m.entries {
		c.add(e)
	}
	return c
}

// Remove takes keys out, as far as they are there.
func (m *Metadata) Remove(keys ...string) {
	kept := Metadata{}
	for _, e := range m.entries {
		if !slices.Contains(keys, e.key) {
			kept.add(e)
		}
	}
	*m = kept
}
