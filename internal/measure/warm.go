package measure

import (
	"math"
	"time"
)

const (
	warmAgree = 0.03                   // two runs that agree to this share are warm
	warmLeast = 200 * time.Millisecond // of runs after the first that is allowed however short they are
)

// Warm runs something until two runs in succession take the same time, or the runs after the first have taken as long as one repetition
// of what is measured later, which is so many times a run. Where others take the machine's time no two runs agree, and without this
// bound the warm-up took four times as long as what it was for.
func Warm(repetition float64, run func() (time.Duration, error)) error {
	first, err := run()
	if err != nil {
		return err
	}
	budget := max(warmLeast, time.Duration(float64(first)*repetition))
	for spent, last := time.Duration(0), first; spent+last <= budget; {
		d, err := run()
		if err != nil {
			return err
		}
		if math.Abs(float64(d-last)) <= warmAgree*float64(d) {
			return nil
		}
		spent, last = spent+d, d
	}
	return nil
}
