package arch

import (
	"fmt"
	"strconv"
	"strings"
)

// recorder is a source that keeps the names of the tensors that it was asked for.
type recorder struct {
	Source
	asked map[string]bool
}

func (r recorder) Shape(tensor string) (rows, cols int, ok bool) {
	r.asked[tensor] = true
	return r.Source.Shape(tensor)
}

// allRead fails if the file has tensors that the architecture knows nothing of: without them the model would be another one, which nobody would see.
func (b *builder) allRead(asked map[string]bool) {
	var unread []string
	for _, name := range b.src.Tensors() {
		if !asked[name] && !b.spare(name) {
			unread = append(unread, name)
		}
	}
	more := ""
	switch n := len(unread); {
	case n == 0:
		return
	case n > 1:
		more = fmt.Sprintf(", and %d more", n-1)
	}
	b.fail(fmt.Errorf("tensor %s%s: ck knows no such tensor in a model of architecture %s; to leave it out would change what the model says", unread[0], more, b.arch))
}

// spare reports whether a tensor may stay unread: it belongs to layers that are left out, or it is the scale of activations for processors that
// multiply 4-bit floats.
func (b *builder) spare(tensor string) bool {
	if strings.HasSuffix(tensor, ".input_scale") {
		return true
	}
	rest, ok := strings.CutPrefix(tensor, "blk.")
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	return ok && err == nil && n >= b.layers && n < b.size("block_count")
}
