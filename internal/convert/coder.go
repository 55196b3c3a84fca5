package convert

import (
	"context"
	"sync"
)

// Coder quantizes rows of one tensor by a rule of its own. Several goroutines may use it at once.
type Coder interface {
	// Encode quantizes whole rows of x, which it may overwrite, to dst.
	Encode(dst []byte, x []float32) error
}

// coder is the Coder of a tensor, made when the first of its chunks is reached and let go behind the last.
type coder struct {
	once sync.Once
	c    Coder
	err  error
}

// get makes the coder, once; others wait.
func (c *coder) get(ctx context.Context, prepare func(context.Context) (Coder, error)) (Coder, error) {
	c.once.Do(func() { c.c, c.err = prepare(ctx) })
	return c.c, c.err
}
