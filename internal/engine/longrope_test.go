package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/testkit"
)

// A sequence that was expected to become long has the same logits whatever pieces it comes in; a short one cannot become long, and stays as it was.
func TestLongRope(t *testing.T) {
	c := testkit.LoadCase(t, "phi3-longrope") // 256 positions are short
	m, err := gguf.Open(c.Dir + "/model.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := Open(m, Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ids := make([]int32, 300)
	for i := range ids {
		ids[i] = int32(7*i) % int32(e.Graph.Vocab)
	}
	forward := func(seq int, ids []int32) (out []float32, err error) {
		err = e.Forward(context.Background(), seq, ids, Last, func(_ int, l []float32) error { out = slices.Clone(l); return nil })
		return out, err
	}
	want, err := forward(e.NewSeq(), ids)
	if err != nil {
		t.Fatal(err)
	}
	pieces := e.NewSeq()
	if !e.Expect(pieces, 257) {
		t.Fatal("an empty sequence cannot become long")
	}
	if _, err := forward(pieces, ids[:100]); err != nil {
		t.Fatal(err)
	}
	if e.Expect(pieces, 256) || !e.Expect(pieces, 300) {
		t.Error("positions of a long sequence are those of a short one, or not of another long one")
	}
	if got, err := forward(pieces, ids[100:]); err != nil || !slices.Equal(got, want) {
		t.Errorf("other logits in pieces (%v)", err)
	}
	short := e.NewSeq()
	first, err := forward(short, ids[:200])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forward(short, ids[200:]); err == nil || !strings.Contains(err.Error(), "longrope") || e.Len(short) != 200 {
		t.Errorf("%v, %d positions", err, e.Len(short))
	}
	e.Truncate(short, 0)
	if !e.Expect(short, 300) {
		t.Error("an emptied sequence cannot become long")
	}
	if long, err := forward(short, ids[:200]); err != nil || slices.Equal(first, long) {
		t.Errorf("long and short sequences have the same logits (%v)", err)
	}
}
