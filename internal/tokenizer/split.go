package tokenizer

import "fmt"

// behavior says what becomes of the matches of a split, with the names of tokenizer.json.
type behavior uint8

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

func parseBehavior(s string) (behavior, error) {
	switch s {
	case "Isolated", "isolated", "":
		return isolated, nil
	case "Removed", "removed":
		return removed, nil
	case "MergedWithPrevious", "merged_with_previous":
		return mergedWithPrevious, nil
	case "MergedWithNext", "merged_with_next":
		return mergedWithNext, nil
	case "Contiguous", "contiguous":
		return contiguous, nil
	}
	return 0, fmt.Errorf("split behaviour %q is not known", s)
}

// splitStep cuts each piece that the step before left.
type splitStep struct {
	expr     string // as it is written
	pattern  *pattern
	behavior behavior
	invert   bool // matches and what lies between change places
}

// run appends to dst the pieces into which the step cuts pieces of text.
func (s *splitStep) run(m *matcher, dst, pieces []span, text string) []span {
	for _, p := range pieces {
		n := len(dst)
		dst = m.split(dst, text, int(p.lo), int(p.hi))
		if s.behavior != isolated {
			dst = s.arrange(dst, n)
		}
	}
	return dst
}

// arrange applies the behaviour to dst[from:].
func (s *splitStep) arrange(dst []span, from int) []span {
	out := dst[:from]
	var prev bool // the piece before was a match, before any merging
	for i, p := range dst[from:] {
		match := p.match != s.invert
		n := len(out)
		switch {
		case s.behavior == removed && match:
		case i > 0 && (s.behavior == mergedWithPrevious && match && !prev || s.behavior == mergedWithNext && !match && prev ||
			s.behavior == contiguous && match == prev):
			out[n-1].hi = p.hi
		default:
			out = append(out, p)
		}
		prev = match
	}
	return out
}

// splitAt is a step that isolates the matches of expr.
func splitAt(expr string) (splitStep, error) {
	p, err := compilePattern(expr)
	if err != nil {
		return splitStep{}, fmt.Errorf("pre-tokenizer %.60q: %w: %w", expr, ErrUnsupported, err)
	}
	return splitStep{expr: expr, pattern: p}, nil
}

func splitAtAll(exprs []string) ([]splitStep, error) {
	var steps []splitStep
	for _, e := range exprs {
		s, err := splitAt(e)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}
