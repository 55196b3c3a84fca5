package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxAlike    = 3   // sentences of one kind that are worth reading
	maxSentence = 300 // bytes; names of a stranger's files can be long
)

// notes collects what is missing or makes no sense, one sentence each. A nil notes drops them: the engine does not ask.
type notes struct {
	kinds []string // formats, in the order in which they came up
	lists map[string][]string
	more  map[string]int
}

func (n *notes) add(format string, args ...any) {
	if n == nil {
		return
	}
	if n.lists == nil {
		n.lists, n.more = map[string][]string{}, map[string]int{}
	}
	list := n.lists[format]
	if list == nil {
		n.kinds = append(n.kinds, format)
	}
	if len(list) == maxAlike {
		n.more[format]++
		return
	}
	if s := readable(fmt.Sprintf(format, args...)); !slices.Contains(list, s) {
		n.lists[format] = append(list, s)
	}
}

// readable is a sentence without what a terminal would obey, and not too long.
func readable(s string) string {
	if len(s) > maxSentence {
		s = s[:maxSentence] + "…"
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == utf8.RuneError || c >= 0x7f && c < 0xa0 {
			return '?'
		}
		return c
	}, s)
}

// unreadable notes a file that is there and cannot be read. Files that only root may read are no news.
func (n *notes) unreadable(name string, err error) {
	if n == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errSteps) {
		return
	}
	for p := (*fs.PathError)(nil); errors.As(err, &p); {
		err = p.Err
	}
	n.add("%s cannot be read: %v", name, err)
}

// all is the sentences.
func (n *notes) all() []string {
	var all []string
	for _, k := range n.kinds {
		all = append(all, n.lists[k]...)
		if m := n.more[k]; m > 0 {
			all[len(all)-1] += fmt.Sprintf(" (and %d more like this)", m)
		}
	}
	return all
}
