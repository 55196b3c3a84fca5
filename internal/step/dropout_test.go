package step

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ck/internal/graph"
)

// SplitMix64 as others have it: the numbers that its state makes from 1234567 on (rosettacode.org, Pseudo-random numbers/Splitmix64).
func TestMix(t *testing.T) {
	z := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := mix(z + uint64(i)*gamma); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

// mask is 1 where a column of a row of the walk is kept.
func mask(d graph.Draw, place, row, from, cols int, p float64) string {
	x, out := make([]float32, cols), make([]float32, cols)
	for i := range x {
		x[i] = 1
	}
	Dropout{p, place}.drop(out, x, &d, row, from)
	var b strings.Builder
	for _, y := range out {
		b.WriteByte("01"[int(min(1, y))])
	}
	return b.String()
}

// Masks are those that a few lines of Python make by the definition: checkpoints of one version go on in the next.
func TestDropoutMasks(t *testing.T) {
	for _, c := range []struct {
		d          graph.Draw
		place, row int
		p          float64
		want       string
	}{
		{graph.Draw{Seed: 1}, 0, 0, 0.5, "1001111001111101101000001010101100110011100100010001010010011010"},
		{graph.Draw{Seed: 42, Step: 17, Row: 500}, 2, 13, 0.25, "1111011111101100110001111011111111111011111111111001111111111"},
		{graph.Draw{Seed: 1<<40 + 3, Step: 1 << 33, Row: 1 << 35}, 9, 1, 0.9, "0100000000100000001010000010000000000010"},
	} {
		if got := mask(c.d, c.place, c.row, 0, len(c.want), c.p); got != c.want {
			t.Errorf("%+v, place %d, row %d: %s, want %s", c.d, c.place, c.row, got, c.want)
		}
		for from := range len(c.want) { // any cut of the columns
			for n := range min(20, len(c.want)-from) {
				if got := mask(c.d, c.place, c.row, from, n, c.p); got != c.want[from:from+n] {
					t.Fatalf("columns %d to %d: %s, want %s", from, from+n, got, c.want[from:from+n])
				}
			}
		}
	}
}

// What is kept is divided by 1-P, what is dropped is zero; 0 drops nothing; what is no number stays none; the input's memory may be the output's.
func TestDropoutValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := graph.Draw{Seed: 3, Step: 4, Row: 5}
	for _, p := range []float64{0, 1e-9, 0.1, 0.5, 0.999, 1 - 1e-12} {
		for _, n := range []int{0, 1, 7, 8, 9, 31, 64, 127} {
			x, out := make([]float32, n), make([]float32, n)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			Dropout{p, 1}.drop(out, x, &d, 2, 0)
			kept := mask(d, 1, 2, 0, n, p)
			for i, y := range out {
				want := 0.0
				if kept[i] == '1' {
					want = float64(x[i]) / (1 - p)
				}
				if math.Abs(float64(y)-want) > 1e-6*math.Abs(want) || p == 0 && y != x[i] {
					t.Errorf("%v, column %d of %d: %v of %v, kept %c", p, i, n, y, x[i], kept[i])
				}
			}
			Dropout{p, 1}.drop(x, x, &d, 2, 0)
			for i := range x {
				if math.Float32bits(x[i]) != math.Float32bits(out[i]) {
					t.Errorf("%v, column %d of %d: %v in place, %v beside", p, i, n, x[i], out[i])
				}
				x[i] = float32(math.Inf(1 - 2*(i%2)))
			}
			Dropout{p, 1}.drop(out, x, &d, 2, 0)
			for i, y := range out {
				if y-y == 0 {
					t.Errorf("%v, column %d of %d: %v of an infinity", p, i, n, y)
				}
			}
		}
	}
}

// The share that is dropped is P within five deviations; elements of neighbouring columns, rows, places, steps and seeds are dropped without regard to each
// other, and none of these has the mask of another.
func TestDropoutShares(t *testing.T) {
	const rows, cols = 400, 203
	for _, p := range []float64{0.02, 0.1, 0.5, 0.8} {
		all := func(d graph.Draw, place, row, from int) (m string) {
			for r := range rows {
				m += mask(d, place, row+r, from, cols, p)
			}
			return m
		}
		d := graph.Draw{Seed: 5, Step: 6, Row: 7}
		base, n := all(d, 3, 0, 0), float64(rows*cols)
		if dropped := float64(strings.Count(base, "0")); math.Abs(dropped-n*p) > 5*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%v: %v of %v are dropped", p, dropped, n)
		}
		for what, other := range map[string]string{
			"column": all(d, 3, 0, 1), "pair": all(d, 3, 0, 2), "row": all(d, 3, 1, 0),
			"row of the batch": all(graph.Draw{Seed: 5, Step: 6, Row: 8}, 3, 0, 0),
			"place":            all(d, 4, 0, 0), "step": all(graph.Draw{Seed: 5, Step: 7, Row: 7}, 3, 0, 0), "seed": all(graph.Draw{Seed: 6, Step: 6, Row: 7}, 3, 0, 0),
		} {
			both := 0.0
			for i := range base {
				if base[i] == '0' && other[i] == '0' {
					both++
				}
			}
			if math.Abs(both-n*p*p) > 5*math.Sqrt(n*p*p*(1-p*p)) {
				t.Errorf("%v: %v of %v are dropped together with those of the next %s", p, both, n, what)
			}
		}
	}
}

// Of x + f(x) elements of the block f are dropped, whatever it is made of and on whichever side it stands; sums of parts of a block are none.
func TestDropped(t *testing.T) {
	build := func() *graph.Graph {
		g := &graph.Graph{Vocab: 5}
		do := func(op graph.Op, name string, in ...graph.ValueID) graph.ValueID {
			v := g.NewValue(name, 4)
			var w []graph.WeightID
			switch op.(type) {
			case Embed:
				w = append(w, g.NewWeight(name, 5, 4))
			case Matmul:
				w = append(w, g.NewWeight(name, 4, 4))
			}
			g.Add(op, name, in, []graph.ValueID{v}, w...)
			return v
		}
		x := do(Embed{}, "tokens")
		second := do(Embed{}, "others")
		a, b := do(Matmul{Slices: 1}, "a", x), do(Matmul{Slices: 1}, "b", x)
		x = do(Add{}, "left", x, do(Add{}, "parts", a, b))
		x = do(Add{}, "right", do(Scale{By: 2}, "c", do(Matmul{Slices: 1}, "d", x)), x)
		x = do(Scale{By: 0.5}, "scaled", do(Add{}, "beside", x, second))
		pick := func(name string, x graph.ValueID) graph.ValueID {
			v := do(Pick{}, name, x)
			g.Values[v].Space.Picked = true
			return v
		}
		y := do(Matmul{Slices: 1}, "e", x)
		y = do(Scale{By: 3}, "f", pick("y", y))
		g.Values[y].Space.Picked = true
		x = do(Add{}, "last", pick("x", x), y)
		g.Values[x].Space.Picked = true
		g.Logits = do(Add{}, "twice", x, x)
		g.Values[g.Logits].Space.Picked = true
		return g
	}
	g := build()
	if n := Dropped(g, 0.1); n != 4 {
		t.Errorf("%d places", n)
	}
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	reads, places := map[string]string{}, 0
	for _, s := range g.Steps {
		for _, v := range s.In {
			reads[s.Name] += g.Values[v].Name + " "
		}
		if c, ok := s.Op.(Dropout); ok {
			if c != (Dropout{0.1, places}) {
				t.Errorf("%s: %+v", s.Name, c)
			}
			places++
		}
	}
	for name, want := range map[string]string{
		"tokens.dropped": "tokens.whole ", "a": "tokens ", "parts": "a b ", "left": "tokens parts.dropped ", "right": "c.dropped left ",
		"beside": "right others ", "last": "x f.dropped ", "twice": "last last ",
	} {
		if reads[name] != want {
			t.Errorf("%s reads %q, want %q", name, reads[name], want)
		}
	}
	for _, p := range []float64{-0.1, 1 - 1e-12, 1, math.NaN()} {
		g := build()
		Dropped(g, p)
		if g.Check() == nil {
			t.Errorf("%v is taken", p)
		}
	}
}
