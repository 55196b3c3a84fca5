package main

import (
	"fmt"
	"strings"
)

// kernelSet is the text of a dot.Kernels: names of functions.
type kernelSet struct {
	layout        string
	gemv          string
	small         []string // of 2, 3, ... rows
	gemm          []string // of 1, 2, ... rows
	tile, few     int
	sliced, folds bool
	streams       bool
	unpack        string // "": none
	unpackedBytes int
}

func (k *kernelSet) text() string {
	list := func(names []string) string { return "[]func(*Args){" + strings.Join(names, ", ") + "}" }
	s := fmt.Sprintf("%s: {Gemv: %s,\n\t\tSmall: %s,\n\t\tGemm: %s, Tile: %d", k.layout, k.gemv, list(append([]string{"nil", "nil"}, k.small...)),
		list(append([]string{"nil"}, k.gemm...)), k.tile)
	if k.unpack != "" {
		s += fmt.Sprintf(", Unpack: %s, UnpackedBytes: %d", k.unpack, k.unpackedBytes)
	}
	if k.few > 0 {
		s += fmt.Sprintf(", Few: %d", k.few)
	}
	if k.sliced {
		s += ", Sliced: true"
	}
	if k.streams {
		s += ", Streams: true"
	}
	if k.folds {
		s += ", Folds: true"
	}
	return s + "}"
}

// set writes a dot.Set; doc ends the sentence that begins with its name.
func (e *gen) set(name, doc string, kernels []kernelSet) {
	e.code("\n// %s %s\nvar %s = Set{Of: [Layouts]Kernels{", name, doc, name)
	for i := range kernels {
		e.code("%s,", kernels[i].text())
	}
	e.code("}}")
}

// names are the names of a kernel for rows from..to.
func names(format string, from, to int) (list []string) {
	for r := from; r <= to; r++ {
		list = append(list, fmt.Sprintf(format, r))
	}
	return list
}

// activationRows is a number of rows in words.
func activationRows(n int) string {
	if n == 1 {
		return "one activation row"
	}
	return fmt.Sprintf("%d activation rows", n)
}
