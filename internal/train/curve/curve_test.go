package curve

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"ck/internal/picture"
)

// of is a curve of losses, from step 1 on.
func of(losses ...float64) *Curve {
	c := &Curve{}
	for i, l := range losses {
		c.Add(Point{Step: i + 1, Loss: l, Speed: 100})
	}
	return c
}

// The smoothed loss is the mean of all losses, each of which weighs 0.9 times as much as the one after it.
func TestSmoothed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var losses []float64
	for n := range 60 {
		losses = append(losses, 3+0.1*rng.NormFloat64())
		sum, weight := 0.0, 0.0
		for i, l := range losses {
			w := math.Pow(0.9, float64(n-i))
			sum, weight = sum+w*l, weight+w
		}
		if got := of(losses...).Last().Smoothed; math.Abs(got-sum/weight) > 1e-12 {
			t.Fatalf("step %d: %v, want %v", n+1, got, sum/weight)
		}
	}
}

// A leap is three losses in a row that are far above what came before: not one, not two, not noise, not a slow rise, and not before there is something to
// compare with. Behind it the new losses are normal.
func TestLeap(t *testing.T) {
	noisy := func(seed uint64, n int, level func(step int) float64) (leaps []Leap) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := &Curve{}
		for i := 1; i <= n; i++ {
			if l := c.Add(Point{Step: i, Loss: level(i) + 0.05*rng.NormFloat64()}); l != nil {
				leaps = append(leaps, *l)
			}
		}
		return leaps
	}
	flat := func(int) float64 { return 2 }
	for seed := range uint64(20) {
		for name, level := range map[string]func(int) float64{
			"noise":  flat,
			"falls":  func(i int) float64 { return 2 + 6*math.Exp(-float64(i)/30) },
			"rises":  func(i int) float64 { return 2 + float64(i)/200 },
			"one":    func(i int) float64 { return 2 + 5*float64(max(0, 1-abs(i-60))) },
			"two":    func(i int) float64 { return 2 + 5*float64(max(0, 1-abs(i-60))+max(0, 1-abs(i-61))) },
			"sooner": func(i int) float64 { return 2 + 5*float64(min(1, i/15)) },
		} {
			if l := noisy(seed, 200, level); len(l) > 0 {
				t.Errorf("%s, seed %d: %+v", name, seed, l)
			}
		}
		l := noisy(seed, 200, func(i int) float64 { return 2 + 3*float64(min(1, i/80)) })
		if len(l) != 1 || l[0].Step != 80 || math.Abs(l[0].Loss-5) > 0.3 || math.Abs(l[0].Mean-2) > 0.1 || l[0].Deviation < 0.02 || l[0].Deviation > 0.1 {
			t.Errorf("seed %d: %+v", seed, l)
		}
		if l := noisy(seed, 300, func(i int) float64 { return 2 + 3*float64(i/80) }); len(l) != 3 {
			t.Errorf("three stairs, seed %d: %+v", seed, l)
		}
	}
	stairs := of(slicesOf(1, 50)...)
	for i := 51; i <= 53; i++ {
		stairs.Add(Point{Step: i, Loss: 9})
	}
	if got := stairs.Last().Smoothed; got != 9 {
		t.Errorf("behind a leap to 9 the smoothed loss is %v", got)
	}
	c := of(slicesOf(1, 50)...)
	if c.Add(Point{Step: 51, Loss: 1}) != nil {
		t.Error("losses that are all alike leap")
	}
}

func abs(x int) int { return max(x, -x) }

func slicesOf(x float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = x
	}
	return out
}

// A log is read as it was written, up to a step; the size is that of these lines. Half a line behind them is none.
func TestReadLog(t *testing.T) {
	want, log, sizes := &Curve{}, &bytes.Buffer{}, []int{0}
	for i := range 40 {
		p := Point{Step: i + 1, Loss: 5 - 0.1*float64(i), Norm: 1.5, Rate: 1e-3, Targets: 99, Speed: 1000, Share: 0.25, Epoch: 0.5}
		if i%7 == 3 {
			v := 4.0
			p.Val = &v
		}
		want.Add(p)
		if err := want.Write(log); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, log.Len())
	}
	whole := log.String()
	for _, last := range []int{0, 1, 2, 39, 40, 1000} {
		n := min(last, 40)
		for _, more := range []string{"", `{"schema":"ck.train.step/1","st`, "{"} {
			c, size, err := Read(strings.NewReader(whole+more), last)
			if err != nil || size != int64(sizes[n]) || len(c.Points) != n || n > 0 && !reflect.DeepEqual(c.Points, want.Points[:n]) {
				t.Errorf("up to step %d, then %q: %d bytes, %v", last, more, size, err)
			}
			if n == 40 && c.smooth != want.smooth {
				t.Error("what comes next is smoothed in another way")
			}
		}
	}
	for _, half := range []string{"", "{", whole[:5], whole[:30]} {
		if c, size, err := Read(strings.NewReader(half), 10); err != nil || size != 0 || len(c.Points) != 0 {
			t.Errorf("%q: %d bytes, %v", half, size, err)
		}
	}
	first := whole[:sizes[1]]
	for _, bad := range []string{"Once upon a time\n", "Once upon", "{}\n", "[]\n", first + first, first + "\n", first + "x\n", strings.Replace(first, "step/1", "step/2", 1),
		strings.Replace(first, `"step":1`, `"step":0`, 1), strings.Repeat("x", longest+1), strings.Repeat(" ", longest+1) + first, "\x00\x01\n"} {
		if _, _, err := Read(strings.NewReader(bad), 10); !errors.Is(err, ErrLog) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	if _, _, err := Read(io.MultiReader(strings.NewReader(first), failing{}), 10); err == nil || errors.Is(err, ErrLog) {
		t.Errorf("%v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

// The speed of steps together is their tokens by their time, not the mean of their speeds.
func TestSpeed(t *testing.T) {
	c := &Curve{}
	if c.Speed(3) != 0 {
		t.Error("a speed of nothing")
	}
	for i, s := range []float64{7, 100, 300} {
		c.Add(Point{Step: i + 1, Loss: 1, Speed: s})
	}
	if got := c.Speed(2); math.Abs(got-2/(1.0/100+1.0/300)) > 1e-9 {
		t.Errorf("%v", got)
	}
}

// A chart has every loss, those of many steps as means, and every loss of what is held out; its axis is logarithmic where they span more than a decade.
func TestChart(t *testing.T) {
	for _, n := range []int{1, 2, 19, 20, mostPoints, mostPoints + 1, 3*mostPoints - 1} {
		c, sum := &Curve{}, 0.0
		for i := 1; i <= n; i++ {
			p := Point{Step: i, Loss: 2 + math.Sin(float64(i))}
			if i == n || i == 5 {
				v := 2.5
				p.Val = &v
			}
			sum += p.Loss
			c.Add(p)
		}
		d := c.Chart("Training of m")
		loss, val := d.Lines[0], d.Lines[len(d.Lines)-1]
		if d.LogY || loss.Name != "loss" || val.Name != "held out" || len(d.Lines) != 2+min(1, n/smoothFrom) || loss.Faint != (n >= smoothFrom) {
			t.Errorf("%d steps: %d lines, %q, %q", n, len(d.Lines), loss.Name, val.Name)
		}
		if len(loss.X) > mostPoints || loss.X[len(loss.X)-1] != float64(n) || val.X[len(val.X)-1] != float64(n) || len(val.X) != 1+min(1, n/6) {
			t.Errorf("%d steps: %d points to %v; held out %v", n, len(loss.X), loss.X[len(loss.X)-1], val.X)
		}
		all, before := 0.0, 0.0
		for i, x := range loss.X {
			all, before = all+loss.Y[i]*(x-before), x
		}
		if math.Abs(all-sum) > 1e-9*sum {
			t.Errorf("%d steps: the points stand for losses of %v, there are %v", n, all, sum)
		}
		if n > 100 {
			continue
		}
		for _, f := range []picture.Format{picture.SVG, picture.PNG} {
			var b bytes.Buffer
			if err := d.Draw(&b, f); err != nil {
				t.Fatal(err)
			}
			if f == picture.PNG {
				if _, err := png.Decode(&b); err != nil {
					t.Error(err)
				}
				continue
			}
			text := textOf(t, &b)
			for _, want := range []string{"Training of m", "step", "loss (nats a token)", "held out", fmt.Sprintf("step %d, epoch 0.00: loss", n)} {
				if !strings.Contains(text, want) {
					t.Errorf("%d steps: the picture does not say %q", n, want)
				}
			}
		}
	}
	if !of(5, 0.4).Chart("").LogY || of(5, 0.6).Chart("").LogY || of(5, 0).Chart("").LogY {
		t.Error("axes")
	}
}

// textOf is the text of an SVG file.
func textOf(t *testing.T, r io.Reader) string {
	var b strings.Builder
	for d := xml.NewDecoder(r); ; {
		x, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := x.(xml.CharData); ok {
			b.Write(s)
		}
	}
}

// A line of text goes from the highest mark to the lowest as the losses do, with a column for as many steps each.
func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		losses  []float64
		columns int
		want    string
		ascii   string
	}{
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, 40, "█▇▆▅▄▃▂▁", "#%*+=-._"},
		{[]float64{9, 7, 5, 3, 1, 1}, 3, "█▄▁", "#=_"}, // 8, 4, 1: 3 of 7 is 3
		{[]float64{1, 1, 1, 8, 8, 8, 1, 1, 1}, 3, "▁█▁", "_#_"},
		{[]float64{2, 2, 2}, 40, "▁▁▁", "___"},
		{[]float64{1}, 40, "▁", "_"},
		{[]float64{1, 1, 8, 1, 1}, 2, "▁█", "_#"},
	} {
		if got := of(c.losses...).Sparkline(c.columns, false); got != c.want {
			t.Errorf("%v: %q, want %q", c.losses, got, c.want)
		}
		if got := of(c.losses...).Sparkline(c.columns, true); got != c.ascii {
			t.Errorf("%v: %q, want %q", c.losses, got, c.ascii)
		}
	}
}
