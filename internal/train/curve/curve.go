// Package curve keeps the losses of a training run, step by step: smoothed, watched for leaps, drawn.
package curve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Schema names the lines of a log.
const Schema = "ck.train.step/1"

// A Point is what a step did, a line of a log.
type Point struct {
	Schema   string   `json:"schema"`
	Step     int      `json:"step"` // counted from 1
	Loss     float64  `json:"loss"` // of a token that counts, in nats, before the step
	Smoothed float64  `json:"smoothed_loss"`
	Val      *float64 `json:"val_loss,omitempty"` // of what is held out, behind the step; nil: nobody looked
	Balance  *float64 `json:"aux_loss,omitempty"` // the load-balancing term of experts, which Loss is without; nil: there is none
	Norm     float64  `json:"norm"`
	Rate     float64  `json:"lr"`
	Targets  int      `json:"targets"`
	Speed    float64  `json:"tokens_per_s"`
	Share    float64  `json:"peak_share,omitempty"` // of the arithmetic that the machine can do; 0: not known
	Epoch    float64  `json:"epoch"`
}

// A Curve is the steps of a run, in their order.
type Curve struct {
	Points []Point

	smooth smooth
}

// Add appends a step, whose smoothed loss it fills in, and reports a leap of the loss where this step is the one that makes it sure.
func (c *Curve) Add(p Point) *Leap {
	leap := c.smooth.add(p.Step, p.Loss)
	p.Schema, p.Smoothed = Schema, c.smooth.mean()
	c.Points = append(c.Points, p)
	return leap
}

// Last is the last step; there must be one.
func (c *Curve) Last() *Point { return &c.Points[len(c.Points)-1] }

// Speed is the tokens a second of the last n steps together; 0: there are none.
func (c *Curve) Speed(n int) float64 {
	tokens, seconds := 0.0, 0.0
	for _, p := range c.Points[max(0, len(c.Points)-n):] {
		if p.Speed > 0 {
			tokens, seconds = tokens+1, seconds+1/p.Speed // steps have as many tokens each
		}
	}
	if seconds == 0 {
		return 0
	}
	return tokens / seconds
}

// memory is what a step keeps of the smoothed loss of those before: about 10 steps count.
const memory = 0.9

// A leap is leapSteps steps in a row whose loss is more than leapDeviations standard deviations above the smoothed loss, which must stand on leapAfter steps.
const (
	leapDeviations = 6
	leapSteps      = 3
	leapAfter      = 20
)

// A Leap is a loss that rose at once and stays up.
type Leap struct {
	Step            int // the first of them
	Loss            float64
	Mean, Deviation float64 // of the steps before
}

// smooth is the weighted mean of losses, the later the heavier, and of their squared distances.
type smooth struct {
	n            int
	weight       float64 // of all that was added
	sum, squares float64
	high         int // steps in a row that are too high
	from         Leap
}

func (s *smooth) mean() float64 { return s.sum / s.weight }

// add takes a loss in. One that is too high waits: only if the next ones are too, is it what is normal from then on.
func (s *smooth) add(step int, loss float64) *Leap {
	if s.n >= leapAfter {
		mean, dev := s.mean(), math.Sqrt(s.squares/s.weight)
		if loss > mean+leapDeviations*dev && loss > mean*(1+1e-6) { // losses that are all alike have no deviation
			if s.high++; s.high == 1 {
				s.from = Leap{step, loss, mean, dev}
			}
			if s.high < leapSteps {
				return nil
			}
			leap := s.from
			*s = smooth{}
			s.take(loss)
			return &leap
		}
	}
	s.high = 0
	s.take(loss)
	return nil
}

func (s *smooth) take(loss float64) {
	if s.n > 0 {
		d := loss - s.mean()
		s.squares = memory*s.squares + (1-memory)*d*d
	} else {
		s.squares = 0
	}
	s.sum, s.weight = memory*s.sum+(1-memory)*loss, memory*s.weight+(1-memory)
	s.n++
}

// Write appends the last step to a log, as a line of JSON in one write.
func (c *Curve) Write(w io.Writer) error {
	b, err := json.Marshal(c.Last())
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// ErrLog is that a file is no log of steps.
var ErrLog = errors.New("is no log of steps; name another file")

// longest is how long a line of a log may be.
const longest = 1 << 16

// Read reads a log as far as it has steps up to the last one. size is how many bytes these are: what follows are steps that a run made behind its last
// checkpoint, or half a line, and is made again.
func Read(r io.Reader, last int) (c *Curve, size int64, err error) {
	c = &Curve{}
	in := bufio.NewReaderSize(r, longest)
	for line := 1; ; line++ {
		text, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && (len(text) == 0 || line > 1 || bytes.HasPrefix([]byte(`{"schema":"`+Schema), text[:min(len(text), 11+len(Schema))])):
			return c, size, nil
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF):
			return nil, 0, fmt.Errorf("line %d: %w", line, ErrLog)
		case err != nil:
			return nil, 0, err
		}
		var p Point
		if json.Unmarshal(text, &p) != nil || p.Schema != Schema || p.Step < 1 {
			return nil, 0, fmt.Errorf("line %d: %w", line, ErrLog)
		}
		if p.Step > last {
			return c, size, nil
		}
		if n := len(c.Points); n > 0 && p.Step <= c.Points[n-1].Step {
			return nil, 0, fmt.Errorf("line %d: step %d behind step %d: %w", line, p.Step, c.Points[n-1].Step, ErrLog)
		}
		c.Add(p)
		size += int64(len(text))
	}
}
