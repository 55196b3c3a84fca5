package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ck/internal/numa"
	"ck/internal/panelfile"
	"ck/internal/walk"
)

// Ablation is a set of things that the engine does for speed. Each can be left out, to measure what it is worth; the logits keep their
// bits.
type Ablation uint8

// The things that can be left out.
const (
	Prefetch Ablation = 1 << iota // of matmul and attention kernels; see kernel.Table.WithoutPrefetch for what stays
	Fuse                          // items that take steps together, work that stays with a worker; see plan.Machine.Separate
	Huge                          // huge pages of panels, buffers and cache
	Pack                          // panels

	AllAblations = Prefetch | Fuse | Huge | Pack
)

// AblationNames are the words for single things, in the order of their bits, and for all of them together.
var AblationNames = []string{"prefetch", "fuse", "huge", "pack", "all"}

// ParseAblation is the meaning of one of AblationNames.
func ParseAblation(word string) (Ablation, bool) {
	switch i := slices.Index(AblationNames, word); {
	case i < 0:
		return 0, false
	case word == "all":
		return AllAblations, true
	default:
		return 1 << i, true
	}
}

// String joins the words with +; it is empty for nothing.
func (a Ablation) String() string {
	if a == AllAblations {
		return "all"
	}
	var words []string
	for i, name := range AblationNames[:len(AblationNames)-1] {
		if a>>i&1 != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, "+")
}

// ErrNoRoom says that there is no room for panels of a variant beside those of its engine.
var ErrNoRoom = errors.New("no room for a second copy of the weights")

// Variant is e without some things, for comparisons: the same model on the same workers. It has panels of its own, or none, without
// Huge or Pack, and sequences of its own without Huge; all else is shared, and sequences of e are the variant's as well
// (SharesSequences). Only one of them may walk at a time. It must be closed before e. ErrNoRoom: open the model again without e.
func (e *Engine) Variant(without Ablation) (*Engine, error) {
	v := &Engine{Graph: e.Graph, Tier: e.Tier, Machine: e.Machine, model: e.model, opt: e.opt, tbl: e.tbl, weights: e.weights, cache: e.cache,
		teams: e.teams, granted: e.granted, of: e, walkers: map[form]*walk.Walker{}, mem: e.mem,
		keep: e.keep, picks: e.picks, homes: e.homes, layout: e.layout, place: e.place, slow: e.slow,
		panelFile: e.panelFile, mapped: e.mapped}
	v.opt.Without |= without
	if without&Prefetch != 0 {
		v.tbl = e.tbl.WithoutPrefetch()
	}
	if without&(Huge|Pack) != 0 && e.mem.kept+e.mem.mapped > 0 {
		v.opt.NoPack = v.opt.NoPack || without&Pack != 0
		if err := v.repack(); err != nil {
			v.Close()
			return nil, err
		}
	}
	if without&Huge != 0 {
		if err := v.makeCache(); err != nil {
			v.Close()
			return nil, err
		}
	}
	return v, nil
}

// repack gives a variant slots of its own.
func (v *Engine) repack() error {
	matrix := make([]bool, len(v.weights.Slots))
	for i, s := range v.weights.Slots {
		matrix[i] = s != nil
	}
	wanted := !v.opt.NoPack
	if v.mem.limit > 0 { // what is left of it, whose it ever was
		v.opt.MemLimit = max(v.mem.limit-v.mem.kept, 1)
	}
	of := v.mem.kept
	if v.opt.NoPack {
		v.mapped = make([]*panelfile.Matrix, len(matrix))
	}
	if err := v.account(matrix); err != nil {
		return err
	}
	if wanted && v.mem.kept < of {
		return fmt.Errorf("%w: panels need %s, the memory budget leaves %s", ErrNoRoom, mib(of), mib(v.mem.limit))
	}
	v.weights.Slots, v.weights.Copies = make([][]*walk.Slot, len(matrix)), nil
	for i, w := range v.Graph.Weights {
		if matrix[i] {
			v.slot(i, w, v.model.Tensor(w.Name))
		}
	}
	return nil
}

// Packed reports whether all weights are packed into panels to stay, or have mapped ones.
func (e *Engine) Packed() bool { return e.mem.kept+e.mem.mapped > 0 && e.mem.kept == e.mem.panels }

// SharesSequences reports whether two engines, an engine and its variants, have the same sequences.
func (e *Engine) SharesSequences(o *Engine) bool { return e.cache == o.cache }

// NoHugePages says why the system gives no huge pages for what the engine asked them for; nil if it does.
func (e *Engine) NoHugePages() error {
	for _, r := range e.regions {
		if err := r.NoHugePages(); err != nil {
			return err
		}
	}
	return nil
}

// pages is how the engine takes memory.
func (e *Engine) pages() numa.Options {
	return numa.Options{SmallPages: e.opt.Without&Huge != 0, Policy: e.place.Policy, Nodes: e.place.Nodes}
}
