package hf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/gguf"
)

// unname gives the name in the folder of a tensor that GGUF has, and its name without layer and end, by which recipes are found. A matrix of
// all experts has E in place of the number of one.
func (c *config) unname(name string) (folder, stem string, err error) {
	part, number := name, ""
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, part, _ = strings.Cut(rest, ".")
		if l, err := strconv.Atoi(number); err != nil || l < 0 || l >= c.layers || strconv.Itoa(l) != number {
			return "", "", fmt.Errorf("tensor %.100q: layer %.20s, but there are %d", name, number, c.layers)
		}
	}
	for key, to := range c.class.names {
		rest, ofLayer := strings.CutPrefix(key, "N.")
		suffix, ok := strings.CutPrefix(part, to)
		if ofLayer != (number != "") || !ok {
			continue
		}
		if whole := strings.Contains(to, "."); whole && suffix != "" || !whole && suffix != ".weight" && suffix != ".bias" {
			continue
		}
		_, shared := projections[key]
		if ofLayer {
			key = "model.layers." + number + "." + rest
		}
		if folder, stem = key+suffix, to; !shared { // a class may have one of its own in place of what others have, as phi3 of gates
			return folder, stem, nil
		}
	}
	if folder != "" {
		return folder, stem, nil
	}
	return "", "", fmt.Errorf("tensor %.100q: a %s has no such tensor", name, c.name)
}

// undo says what a recipe did to a tensor of that stem: the heads whose rows, or elements of a vector, it put in GGUF's order (0: none), and
// whether it added one. The recipe is tried on a tensor of the same rows, so that one that cannot be undone is found out.
func (c *config) undo(stem string, t *gguf.Tensor) (heads int, plusOne bool, err error) {
	change := c.class.recipes[stem]
	if change == nil {
		return 0, false, nil
	}
	probe := &gguf.Tensor{Shape: []int{1, t.Shape[len(t.Shape)-1]}}
	err = change(c, probe, nil)
	if err == nil && probe.Interleave > 0 {
		return probe.Interleave, false, nil
	}
	one := []float32{2}
	if change(c, &gguf.Tensor{Shape: []int{1}}, one) == nil && one[0] == 3 && len(t.Shape) == 1 {
		return 0, true, nil
	}
	if err == nil {
		err = fmt.Errorf("what a %s changes in it cannot be undone", c.name)
	}
	return 0, false, fmt.Errorf("tensor %s: %w", t.Name, err)
}

// folderRow is the number in the folder's order of row r in GGUF's, of rows in so many heads; and ggufRow the other way (see gguf.Tensor.Row).
func folderRow(r, rows, heads int) int {
	d := rows / heads
	j := r % d
	return r - j + j%2*(d/2) + j/2
}

func ggufRow(f, rows, heads int) int {
	d := rows / heads
	j := f % d
	return f - j + j%(d/2)*2 + j/(d/2)
}

// Naming translates between the names of a model's tensors in GGUF and in a folder of its class.
type Naming struct {
	Class string // "LlamaForCausalLM", …

	c *config
}

// NewNaming is the naming of model m. class is the class of the folder, "" for the one that Write would choose.
func NewNaming(m *gguf.Model, class string) (*Naming, error) {
	c, _, err := configOf(m, class)
	if err != nil {
		return nil, err
	}
	return &Naming{c.name, c}, nil
}

// Folder is the name in the folder of tensor t, and the number of heads whose rows have another order there, 0 for none: see GGUFRows.
// Tensors that a folder has in parts, as of experts, and norms less one are errors.
func (n *Naming) Folder(t *gguf.Tensor) (name string, heads int, err error) {
	name, stem, err := n.c.unname(t.Name)
	if err != nil {
		return "", 0, err
	}
	heads, plusOne, err := n.c.undo(stem, t)
	switch {
	case err != nil:
	case plusOne:
		err = fmt.Errorf("tensor %s: the folder has it less one", t.Name)
	case strings.Contains(name, ".experts."):
		err = fmt.Errorf("tensor %s: the folder has a matrix of each expert", t.Name)
	}
	return name, heads, err
}

// GGUF is the name in GGUF of the folder's tensor of that name. Matrices of experts are errors.
func (n *Naming) GGUF(folder string) (string, error) {
	name, _, expert, err := n.c.rename(folder)
	if err == nil && expert >= 0 {
		err = fmt.Errorf("it is of one expert, and GGUF has one tensor of all")
	}
	return name, err
}

// GGUFRows puts rows of a matrix, each so many elements long, from the folder's order of so many heads into GGUF's, and FolderRows back.
// heads 0 leaves them.
func GGUFRows(x []float32, cols, heads int) []float32 {
	return reorder(x, cols, heads, func(r, rows int) int { return folderRow(r, rows, heads) })
}

func FolderRows(x []float32, cols, heads int) []float32 {
	return reorder(x, cols, heads, func(r, rows int) int { return ggufRow(r, rows, heads) })
}

// reorder is the rows of x in the order that from gives.
func reorder(x []float32, cols, heads int, from func(r, rows int) int) []float32 {
	if heads == 0 {
		return slices.Clone(x)
	}
	out := make([]float32, 0, len(x))
	rows := len(x) / cols
	for r := range rows {
		f := from(r, rows)
		out = append(out, x[f*cols:(f+1)*cols]...)
	}
	return out
}
