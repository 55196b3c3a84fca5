// Package npy reads matrices from files of numpy, versions 1 to 3 of its format: float32 and float64, little endian,
// in C order.
package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Array is an array in a file's bytes.
type Array struct {
	Shape  []int
	Double bool // elements are float64, else float32

	data []byte
}

// Parse reads an array. Its elements stay in data. Errors say what is wrong, or which property is not read here.
func Parse(data []byte) (*Array, error) {
	if len(data) < 10 || string(data[:6]) != "\x93NUMPY" {
		return nil, fmt.Errorf("is no .npy file: its first bytes are not those of numpy")
	}
	size, start := int64(binary.LittleEndian.Uint16(data[8:])), int64(10)
	switch major := data[6]; {
	case major < 1 || major > 3:
		return nil, fmt.Errorf("version %d.%d of .npy is not known; 1 to 3 are", major, data[7])
	case major > 1 && len(data) < 12:
		return nil, fmt.Errorf("ends at byte %d, within its header", len(data))
	case major > 1:
		size, start = int64(binary.LittleEndian.Uint32(data[8:])), 12
	}
	if start+size > int64(len(data)) {
		return nil, fmt.Errorf("ends at byte %d, within its header of %d bytes", len(data), start+size)
	}
	a := &Array{data: data[start+size:]}
	if err := a.header(string(data[start : start+size])); err != nil {
		return nil, err
	}
	return a, nil
}

// header reads the dictionary that describes the array.
func (a *Array) header(text string) error {
	kind, err := field(text, "descr")
	if err != nil {
		return err
	}
	switch kind {
	case "'<f4'":
	case "'<f8'":
		a.Double = true
	default:
		return fmt.Errorf("has elements of type %.40q; '<f4' and '<f8' are read", kind)
	}
	order, err := field(text, "fortran_order")
	if err != nil {
		return err
	}
	if order != "False" {
		return fmt.Errorf("has fortran_order %.40q; arrays in C order are read (numpy.ascontiguousarray)", order)
	}
	shape, err := field(text, "shape")
	if err != nil {
		return err
	}
	n := int64(a.width())
	for word := range strings.SplitSeq(strings.Trim(shape, "()"), ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue // after the comma of a single dimension
		}
		k, err := strconv.ParseInt(word, 10, 64)
		if err != nil || k < 0 || k > 0 && n > math.MaxInt64/k {
			return fmt.Errorf("has the shape %.80q, which is none", shape)
		}
		n *= k
		a.Shape = append(a.Shape, int(k))
	}
	if n != int64(len(a.data)) {
		return fmt.Errorf("has %d bytes of elements, and its shape %.80q asks for %d", len(a.data), shape, n)
	}
	return nil
}

// field is the value of a key of the header's dictionary: a string, a word or a tuple.
func field(text, key string) (string, error) {
	_, value, ok := strings.Cut(text, "'"+key+"'")
	value, colon := strings.CutPrefix(strings.TrimLeft(value, " "), ":")
	value = strings.TrimLeft(value, " ")
	end := strings.IndexAny(value, ",}")
	if strings.HasPrefix(value, "(") {
		end = strings.Index(value, ")") + 1
	}
	if !ok || !colon || end <= 0 {
		return "", fmt.Errorf("has no %s in its header", key)
	}
	return strings.TrimSpace(value[:end]), nil
}

func (a *Array) width() int {
	if a.Double {
		return 8
	}
	return 4
}

// Data is the elements as they lie in the file, the last dimension's side by side.
func (a *Array) Data() []byte { return a.data }

// Row writes row i of a matrix, which is its last dimension, into dst. Elements of float64 are rounded.
func (a *Array) Row(i int, dst []float32) {
	for j := range dst {
		dst[j] = float32(a.at(i*len(dst) + j))
	}
}

// Row64 is Row without rounding.
func (a *Array) Row64(i int, dst []float64) {
	for j := range dst {
		dst[j] = a.at(i*len(dst) + j)
	}
}

func (a *Array) at(k int) float64 {
	if a.Double {
		return math.Float64frombits(binary.LittleEndian.Uint64(a.data[8*k:]))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(a.data[4*k:])))
}
