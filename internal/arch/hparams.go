package arch

import (
	"fmt"
	"slices"
)

// hparams reads hyperparameters and keeps the first error, so that a builder reads as one column.
type hparams struct {
	src   Source
	arch  string
	err   error
	notes []string // of defaults that were taken
}

// given is what the file says under a key of the table, if it is there and sound.
func (h *hparams) given(name string) (v float64, ok bool) {
	k, full := keyNamed(name), h.arch+"."+name
	var err error
	if k.Integer {
		var n int64
		n, ok, err = h.src.Int(full)
		v = float64(n)
	} else {
		v, ok, err = h.src.Float(full)
	}
	if err != nil {
		h.fail(err)
		return k.sound(), true
	}
	if !ok {
		return 0, false
	}
	if err := k.Check(v); err != nil {
		h.fail(fmt.Errorf("%s: %w", full, err))
		return k.sound(), true
	}
	return v, true
}

// float is the value of a key of the table, or its default.
func (h *hparams) float(name string) float64 {
	v, ok := h.given(name)
	if ok {
		return v
	}
	k := keyNamed(name)
	if k.Default == nil {
		h.fail(fmt.Errorf("%s.%s: the key is missing; %s", h.arch, name, Remedy))
		return k.sound()
	}
	v = k.Default(h.float)
	if k.Why != "" {
		h.note(name, Text(v), k.Why)
	}
	if err := k.Check(v); err != nil { // computed from other keys
		h.fail(fmt.Errorf("%s.%s: is missing, and what follows from other keys %w", h.arch, name, err))
		return k.sound()
	}
	return v
}

// sizes is the value of an integer key that is a number for all layers or a list of one for each.
func (h *hparams) sizes(name string, layers int) []int {
	out := make([]int, layers)
	list, ok, err := h.src.Ints(h.arch + "." + name)
	if !ok || err != nil { // no list: what else it is, float says
		n := h.size(name)
		for l := range out {
			out[l] = n
		}
		return out
	}
	k, full := keyNamed(name), h.arch+"."+name
	if len(list) < layers {
		h.fail(fmt.Errorf("%s: has %d entries for %d layers; %s", full, len(list), layers, Remedy))
	}
	for l := range out {
		out[l] = int(k.sound())
		if l >= len(list) {
			continue
		}
		if err := k.Check(float64(list[l])); err != nil {
			h.fail(fmt.Errorf("%s: of layer %d %w", full, l, err))
			continue
		}
		out[l] = int(list[l])
	}
	return out
}

// size is the value of an integer key of the table, or its default.
func (h *hparams) size(name string) int { return int(h.float(name)) }

// str is the value of a key that is text, "" where the file has none.
func (h *hparams) str(name string) string {
	s, _, err := h.src.String(h.arch + "." + name)
	if err != nil {
		h.fail(err)
	}
	return s
}

// bools is the value of a key that is a list of bools, and whether the file has it.
func (h *hparams) bools(name string) ([]bool, bool) {
	v, ok, err := h.src.Bools(h.arch + "." + name)
	if err != nil {
		h.fail(err)
	}
	return v, ok
}

// flag is the value of a key that is a bool, and whether the file has it.
func (h *hparams) flag(name string) (v, ok bool) {
	v, ok, err := h.src.Bool(h.arch + "." + name)
	if err != nil {
		h.fail(err)
	}
	return v, ok
}

// relied notes that the file has no key of that name, which is no number.
func (h *hparams) relied(name string) { h.note(name, words[name].says, words[name].why) }

func (h *hparams) note(name, says, why string) {
	line := fmt.Sprintf("%s.%s: not in the file, taken as %s: %s", h.arch, name, says, why)
	if !slices.Contains(h.notes, line) {
		h.notes = append(h.notes, line)
	}
}

// bad is the error of a key.
func (h *hparams) bad(name, format string, args ...any) error {
	return fmt.Errorf("%s.%s: %s; %s", h.arch, name, fmt.Sprintf(format, args...), Remedy)
}

func (h *hparams) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// has reports whether the file has the tensor.
func (h *hparams) has(tensor string) bool {
	_, _, ok := h.src.Shape(tensor)
	return ok
}
