// Package allocate chooses a type for every tensor of a model: the smallest divergence from the original for a size,
// or the smallest size for a divergence.
//
// Two measurements stand behind a choice. Measure gives the error of each tensor in each type. A divergence for each
// class of tensors, made by quantizing that class alone, says what error costs there (Sensitivity). The divergence of
// a choice is predicted as the sum of both over tensors; errors of different tensors are small and independent, so
// that they add up. With prices, the best choices are found by a Lagrange multiplier: along the lower convex hull of
// each tensor's (price, divergence).
package allocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ck/internal/quant"
)

// Option is a type that a tensor may have.
type Option struct {
	Type  quant.Type `json:"-"`
	Name  string     `json:"type"`
	Error float64    `json:"error"` // the weighted squared error over the weighted square of the tensor
	Bytes int64      `json:"bytes"` // in the file
	Read  int64      `json:"read"`  // bytes that ckrun reads for each token: those of its panels
}

// Tensor is a tensor with its options.
type Tensor struct {
	Name    string   `json:"name"`
	Class   string   `json:"class"`
	Weights int64    `json:"weights"`
	Entropy float64  `json:"entropy"` // bits of a weight, of codes of 8 bits
	Options []Option `json:"options"`
}

// Price is what a choice pays with.
type Price func(o *Option) int64

// Size is the price of a file, Speed that of a token.
func Size(o *Option) int64  { return o.Bytes }
func Speed(o *Option) int64 { return o.Read }

// Choice is an option of each tensor, by its index in Options.
type Choice struct {
	Pick       []int
	Bytes      int64   // of the tensors in the file
	Read       int64   // for each token
	Divergence float64 // predicted
}

// divergence is what an option costs: the sensitivity of its class times its error.
func divergence(t *Tensor, o *Option, sensitivity map[string]float64) float64 {
	return sensitivity[t.Class] * o.Error
}

// step is the change from one vertex of a tensor's hull to the next: dearer and better.
type step struct {
	tensor, to int
	price      int64
	gain       float64 // divergence that it saves
}

// Frontier lists all choices that no other one beats along the hulls, the cheapest first. Between two of them one
// tensor changes.
func Frontier(tensors []Tensor, sensitivity map[string]float64, price Price) []Choice {
	pick := make([]int, len(tensors))
	var steps []step
	for i := range tensors {
		hull := hullOf(&tensors[i], sensitivity, price)
		pick[i] = hull[0]
		for j := 1; j < len(hull); j++ {
			a, b := &tensors[i].Options[hull[j-1]], &tensors[i].Options[hull[j]]
			steps = append(steps, step{i, hull[j], price(b) - price(a), divergence(&tensors[i], a,
				sensitivity) - divergence(&tensors[i], b, sensitivity)})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Compare(b.gain/float64(b.price),
			a.gain/float64(a.price))
	})
	list := []Choice{Of(tensors, pick, sensitivity)}
	for _, s := range steps {
		pick[s.tensor] = s.to
		list = append(list, Of(tensors, pick, sensitivity))
	}
	return list
}

// hullOf is the lower convex hull of a tensor's options, the cheapest first.
func hullOf(t *Tensor, sensitivity map[string]float64, price Price) []int {
	order := make([]int, len(t.Options))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &t.Options[a], &t.Options[b]
		return cmp.Or(cmp.Compare(price(x), price(y)), cmp.Compare(x.Error, y.Error), cmp.Compare(x.Bytes, y.Bytes))
	})
	at := func(i int) (float64, float64) {
		o := &t.Options[i]
		return float64(price(o)), divergence(t, o, sensitivity)
	}
	var hull []int
	for _, i := range order {
		x, y := at(i)
		if n := len(hull); n > 0 {
			if _, last := at(hull[n-1]); y >= last {
				continue
			}
		}
		for len(hull) >= 2 {
			x0, y0 := at(hull[len(hull)-2])
			x1, y1 := at(hull[len(hull)-1])
			if (y1-y0)*(x-x0) < (y-y0)*(x1-x0) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, i)
	}
	return hull
}

// Of is the choice of these options, with its sums.
func Of(tensors []Tensor, pick []int, sensitivity map[string]float64) Choice {
	c := Choice{Pick: slices.Clone(pick)}
	for i := range tensors {
		o := &tensors[i].Options[pick[i]]
		c.Bytes, c.Read = c.Bytes+o.Bytes, c.Read+o.Read
		c.Divergence += divergence(&tensors[i], o, sensitivity)
	}
	return c
}

// Within is the best choice of at most so many bytes of the file. Where the frontier is ordered by another price,
// files do not grow along it: the best of all that fit counts.
func Within(frontier []Choice, bytes int64) (Choice, error) {
	return best(frontier, func(c *Choice) bool { return c.Bytes <= bytes },
		func(c *Choice) float64 { return c.Divergence }, "the smallest has %d bytes",
		func(c *Choice) float64 { return float64(c.Bytes) })
}

// Best is the choice of least divergence that is found within so many bytes of the file, at a price: the best of the
// frontier, and of also, after what they leave of the bytes is spent. Along a frontier of another price than the size
// none may fit; then the best by size counts, and so it does where it is no worse in both.
func Best(tensors []Tensor, sensitivity map[string]float64, price Price, bytes int64, also []Choice) (Choice, error) {
	found, err := within(tensors, sensitivity, price, bytes, also)
	if err != nil {
		return found, err
	}
	bySize, err := within(tensors, sensitivity, Size, bytes, nil)
	if err == nil && bySize.Divergence <= found.Divergence &&
		cost(tensors, &bySize, price) <= cost(tensors, &found, price) {
		return bySize, nil
	}
	return found, nil
}

// cost is what a choice costs at a price.
func cost(tensors []Tensor, c *Choice, price Price) (sum int64) {
	for i := range tensors {
		sum += price(&tensors[i].Options[c.Pick[i]])
	}
	return sum
}

// within is the choice along the frontier of one price.
func within(
	tensors []Tensor, sensitivity map[string]float64, price Price, bytes int64, also []Choice,
) (Choice, error) {
	start, err := Within(Frontier(tensors, sensitivity, price), bytes)
	if err != nil {
		if start, err = Within(Frontier(tensors, sensitivity, Size), bytes); err != nil {
			return start, err
		}
	}
	found := Fill(tensors, sensitivity, price, start, bytes)
	for i := range also {
		if also[i].Bytes > bytes {
			continue
		}
		if c := Fill(tensors, sensitivity, price, also[i], bytes); c.Divergence < found.Divergence {
			found = c
		}
	}
	return found, nil
}

// Fill spends what a choice leaves of so many bytes of the file: again and again on the change of one tensor that
// fits and saves the most divergence for its price. Between two choices of the frontier there may be large tensors,
// whose next type does not fit.
func Fill(tensors []Tensor, sensitivity map[string]float64, price Price, c Choice, bytes int64) Choice {
	pick := slices.Clone(c.Pick)
	left := bytes - c.Bytes
	for {
		at, to := -1, 0
		var most worth
		for i := range tensors {
			t := &tensors[i]
			now := &t.Options[pick[i]]
			for j := range t.Options {
				o := &t.Options[j]
				gain := divergence(t, now, sensitivity) - divergence(t, o, sensitivity)
				if gain <= 0 || o.Bytes-now.Bytes > left {
					continue
				}
				w := worth{perUnit(gain, price(o)-price(now)), perUnit(gain, o.Bytes-now.Bytes), gain}
				if at < 0 || w.compare(most) > 0 {
					at, to, most = i, j, w
				}
			}
		}
		if at < 0 {
			return Of(tensors, pick, sensitivity)
		}
		left -= tensors[at].Options[to].Bytes - tensors[at].Options[pick[at]].Bytes
		pick[at] = to
	}
}

// worth is what orders changes: the divergence saved for the price, for the bytes, and at all.
type worth struct{ price, byte, gain float64 }

func (w worth) compare(v worth) int {
	return cmp.Or(cmp.Compare(w.price, v.price), cmp.Compare(w.byte, v.byte), cmp.Compare(w.gain, v.gain))
}

// perUnit is a gain for each unit that it costs; what costs nothing comes before all that does.
func perUnit(gain float64, cost int64) float64 {
	if cost <= 0 {
		return math.Inf(1)
	}
	return gain / float64(cost)
}

// Below is the smallest choice with at most so much divergence, by the price of the frontier.
func Below(frontier []Choice, divergence float64) (Choice, error) {
	i := slices.IndexFunc(frontier, func(c Choice) bool { return c.Divergence <= divergence })
	if i < 0 {
		return Choice{}, fmt.Errorf("no choice is that near to the original; the nearest has %.3g",
			frontier[len(frontier)-1].Divergence)
	}
	return frontier[i], nil
}

// best is the choice that is allowed and has the least value; without any the error says the least of limit.
func best(list []Choice, allowed func(*Choice) bool, value func(*Choice) float64, text string,
	limit func(*Choice) float64) (Choice, error) {
	found, least := -1, math.Inf(1)
	for i := range list {
		least = min(least, limit(&list[i]))
		if allowed(&list[i]) && (found < 0 || value(&list[i]) < value(&list[found])) {
			found = i
		}
	}
	if found < 0 {
		return Choice{}, fmt.Errorf("no choice is that small; "+text, int64(least))
	}
	return list[found], nil
}

// ByEntropy is a choice of at most so many bytes by another rule: the bits of a tensor's weights differ as the
// entropies do.
func ByEntropy(tensors []Tensor, sensitivity map[string]float64, bytes int64) (Choice, error) {
	lo, hi := -16.0, 32.0
	var found Choice
	ok := false
	for range 60 {
		mid := (lo + hi) / 2
		pick := make([]int, len(tensors))
		for i := range tensors {
			t := &tensors[i]
			want := t.Entropy + mid
			for j := range t.Options {
				bits := func(k int) float64 { return 8 * float64(t.Options[k].Bytes) / float64(t.Weights) }
				if math.Abs(bits(j)-want) < math.Abs(bits(pick[i])-want) || bits(j) == bits(pick[i]) &&
					t.Options[j].Error < t.Options[pick[i]].Error {
					pick[i] = j
				}
			}
		}
		if c := Of(tensors, pick, sensitivity); c.Bytes <= bytes {
			found, ok, lo = c, true, mid
		} else {
			hi = mid
		}
	}
	if !ok {
		return found, fmt.Errorf("no choice is that small")
	}
	return found, nil
}

// Beaten is a type that another one beats.
type Beaten struct {
	Type, By string
}

// Prune leaves out options that another type beats or equals in price and error in every tensor that has both, and
// says which.
func Prune(tensors []Tensor, price Price) (out []Tensor, beaten []Beaten) {
	var names []string
	for _, t := range tensors {
		for _, o := range t.Options {
			if !slices.Contains(names, o.Name) {
				names = append(names, o.Name)
			}
		}
	}
	gone := map[string]bool{}
	for _, a := range names {
		for _, b := range names {
			if a != b && !gone[b] && beats(tensors, price, b, a) {
				gone[a], beaten = true, append(beaten, Beaten{a, b})
				break
			}
		}
	}
	for _, t := range tensors {
		t.Options = slices.DeleteFunc(slices.Clone(t.Options), func(o Option) bool { return gone[o.Name] })
		out = append(out, t)
	}
	return out, beaten
}

// beats reports whether type a is no dearer and no worse than b wherever there is b, and better somewhere.
func beats(tensors []Tensor, price Price, a, b string) bool {
	better := false
	for i := range tensors {
		x, y := tensors[i].option(a), tensors[i].option(b)
		switch {
		case y == nil:
			continue
		case x == nil || price(x) > price(y) || x.Error > y.Error:
			return false
		}
		better = better || price(x) < price(y) || x.Error < y.Error
	}
	return better
}

// option finds an option by its type's name.
func (t *Tensor) option(name string) *Option {
	for i := range t.Options {
		if t.Options[i].Name == name {
			return &t.Options[i]
		}
	}
	return nil
}
