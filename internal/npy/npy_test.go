package npy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// file makes a file as numpy does: the header padded so that the elements start at a multiple of 64.
func file(t *testing.T, major byte, header string, elements any) []byte {
	t.Helper()
	start := 10
	if major > 1 {
		start = 12
	}
	header += strings.Repeat(" ", 63-(start+len(header))%64) + "\n"
	b := []byte("\x93NUMPY" + string([]byte{major, 0}))
	if major > 1 {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	}
	b, err := binary.Append(append(b, header...), binary.LittleEndian, elements)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dict(descr, order, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr, order, shape)
}

func TestParse(t *testing.T) {
	single := file(t, 1, dict("<f4", "False", "(2, 3)"), []float32{1, 2, 3, 4, 5, 6})
	a, err := Parse(single)
	if err != nil || !slices.Equal(a.Shape, []int{2, 3}) || a.Double {
		t.Fatalf("%+v, %v", a, err)
	}
	row := make([]float32, 3)
	if a.Row(1, row); !slices.Equal(row, []float32{4, 5, 6}) {
		t.Errorf("row %v", row)
	}
	for major := byte(1); major <= 3; major++ {
		a, err = Parse(file(t, major, dict("<f8", "False", "(2, 1)"), []float64{1, 0.1}))
		if err != nil || !a.Double {
			t.Fatalf("version %d: %+v, %v", major, a, err)
		}
		wide := make([]float64, 1)
		if a.Row64(1, wide); wide[0] != 0.1 {
			t.Errorf("row %v", wide)
		}
	}
	if a, err = Parse(file(t, 1, dict("<f4", "False", "(2,)"), []float32{1, 2})); err != nil || len(a.Shape) != 1 {
		t.Errorf("one dimension: %+v, %v", a, err)
	}
	for n := range single {
		if _, err := Parse(single[:n]); err == nil {
			t.Errorf("passed when cut at %d", n)
		}
	}
}

func TestRefused(t *testing.T) {
	two := []float32{1, 2}
	for _, c := range []struct {
		data []byte
		says string
	}{
		{file(t, 1, dict(">f4", "False", "(2,)"), two), ">f4"},
		{file(t, 1, dict("<i8", "False", "(2,)"), two), "<i8"},
		{file(t, 1, dict("<f4", "True", "(1, 2)"), two), "fortran_order"},
		{file(t, 1, dict("<f4", "False", "(3,)"), two), "12"},
		{file(t, 1, dict("<f4", "False", "(-2,)"), two), "-2"},
		{file(t, 1, dict("<f4", "False", "(4294967296, 4294967296, 2)"), two), "which is none"},
		{file(t, 1, dict("<f4", "False", "(2"), two), "shape"},
		{file(t, 1, "{'descr': '<f4'}", two), "fortran_order"},
		{file(t, 4, dict("<f4", "False", "(2,)"), two), "version 4"},
		{[]byte("PK\x03\x04 an .npz file"), "no .npy"},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.says, err)
		}
	}
}
