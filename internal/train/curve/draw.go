package curve

import (
	"fmt"
	"math"

	"ck/internal/picture"
)

// mostPoints is how many points a line of a chart has: more than it has dots from left to right would not be seen.
const mostPoints = 2000

// smoothFrom is how many steps there must be that the smoothed loss is drawn too.
const smoothFrom = 20

// Chart draws the losses over the steps. An axis whose values span more than a decade is logarithmic.
func (c *Curve) Chart(title string) *picture.Lines {
	loss, mean := picture.Line{Name: "loss"}, picture.Line{Name: "loss, smoothed"}
	val := picture.Line{Name: "held out", Dots: true}
	each := max(1, (len(c.Points)+mostPoints-1)/mostPoints)
	low, high := math.Inf(1), 0.0
	for i := range c.Points {
		p := &c.Points[i]
		x := float64(p.Step)
		if p.Val != nil {
			val.X, val.Y = append(val.X, x), append(val.Y, *p.Val)
			low, high = min(low, *p.Val), max(high, *p.Val)
		}
		if i%each != each-1 && i != len(c.Points)-1 {
			continue
		}
		loss.X, loss.Y = append(loss.X, x), append(loss.Y, c.around(i, each))
		mean.X, mean.Y = append(mean.X, x), append(mean.Y, p.Smoothed)
		low, high = min(low, loss.Y[len(loss.Y)-1]), max(high, loss.Y[len(loss.Y)-1])
	}
	loss.Dots = len(loss.X) == 1
	d := &picture.Lines{Title: title, XName: "step", YName: "loss (nats a token)", LogY: low > 0 && high > 10*low, Lines: []picture.Line{loss}}
	d.Subtitle = c.words()
	if len(c.Points) >= smoothFrom {
		d.Lines[0].Faint = true
		d.Lines = append(d.Lines, mean)
	}
	if len(val.X) > 0 {
		d.Lines = append(d.Lines, val)
	}
	return d
}

// around is the mean loss of the steps that the point of step i stands for.
func (c *Curve) around(i, each int) float64 {
	sum, from := 0.0, max(0, i-i%each)
	for _, p := range c.Points[from : i+1] {
		sum += p.Loss
	}
	return sum / float64(i+1-from)
}

// words says where the run came to.
func (c *Curve) words() string {
	p := c.Last()
	s := fmt.Sprintf("step %d, epoch %.2f: loss %.4f, smoothed %.4f", p.Step, p.Epoch, p.Loss, p.Smoothed)
	for i := len(c.Points) - 1; i >= 0; i-- {
		if v := c.Points[i].Val; v != nil {
			return s + fmt.Sprintf("; held out %.4f at step %d", *v, c.Points[i].Step)
		}
	}
	return s
}

// The heights of a line of text, the lowest first.
var (
	blocks = []rune("▁▂▃▄▅▆▇█")
	plain  = []rune("_.-=+*%#")
)

// Sparkline is the loss as a line of text, of so many columns at most: each the mean of as many steps. ascii is for terminals that have no blocks.
func (c *Curve) Sparkline(columns int, ascii bool) string {
	marks, n := blocks, min(columns, len(c.Points))
	if ascii {
		marks = plain
	}
	means := make([]float64, n)
	low, high := math.Inf(1), math.Inf(-1)
	for i := range means {
		from, to := i*len(c.Points)/n, (i+1)*len(c.Points)/n
		for _, p := range c.Points[from:to] {
			means[i] += p.Loss / float64(to-from)
		}
		low, high = min(low, means[i]), max(high, means[i])
	}
	line := make([]rune, n)
	for i, v := range means {
		at := 0
		if high > low {
			at = int(math.Round((v - low) / (high - low) * float64(len(marks)-1)))
		}
		line[i] = marks[at]
	}
	return string(line)
}
